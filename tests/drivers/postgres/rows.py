"""Devices as rows again, for tests that look at one by one."""

from shared.audience.rules.devices import Devices

Row = tuple[int | str, ...]


def rows_of(devices: Devices) -> list[Row]:
    """Key, user, token and locale of each device, and its zone where that was read."""
    texts = [devices.users, devices.tokens, devices.locales, *([devices.zones] if devices.zones else [])]
    columns = [[text.decode() for text in column] for column in texts]
    return list(zip(devices.keys.tolist(), *columns, strict=True))
