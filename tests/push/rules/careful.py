"""Rendering with care: one device at a time, by formatting and `json`. The product's columns are held to its bytes."""

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import shake_128
from zlib import crc32

from shared.audience.rules.devices import Device
from shared.core.instants import ns
from shared.jobs.rules.jobs import Job
from shared.jobs.rules.templates import Template, filled_body
from shared.push.rules import choices
from shared.push.rules.records import Push, RecordRules, frame, is_dry_run

MASK = 0xFFFF_FFFF_FFFF_FFFF
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
TOKEN_CHARACTERS = {"apns": 64, "gcm": 152}


def template_of(job: Job, device: Device) -> Template | None:
    """The device's template: of the name that was chosen for it, in its language or in English."""
    name = pick(job.template_names, choices.choice_key(job.key, "template"), device)
    subtags = (device[3] or "").strip().lower().replace("_", "-").split("-")
    wanted = ["-".join(subtags[:count]) for count in range(len(subtags), 0, -1)]
    for locale in (*filter(None, wanted), "en"):
        alike = [
            template
            for template in job.plan.templates
            if template.name == name and template.locale.strip().lower().replace("_", "-") == locale
        ]
        if alike:
            return min(alike, key=lambda one: (one.locale != locale, one.locale != one.locale.lower(), one.locale))
    return None


def record(job: Job, device: Device, *, now: datetime, company: Sequence[Device] = ()) -> bytes:
    """The device's record; whoever shares its seq_id in the same batch stands in its company."""
    seq_id, user, token, _ = device
    template = template_of(job, device)
    assert template is not None
    body = filled_body(template, job.context)
    head, before_id, before_user, tail = frame(Push(job, template.name, body, ns(now), RecordRules()))
    shown = fake_token(job, seq_id) if is_dry_run(job) else escape(token)
    muid = message_id(job, device, is_shared=[each[0] for each in company].count(seq_id) > 1)
    return head + shown + before_id + muid.encode() + before_user + escape(user) + tail


def escape(text: str | None) -> bytes:
    return json.dumps(text or "", ensure_ascii=False)[1:-1].encode()


def message_id(job: Job, device: Device, *, is_shared: bool = False) -> str:
    """The job's key as a UUID of version 8, with the device's seq_id in it."""
    seq_id, user, token, _ = device
    key = choices.choice_key(job.key, "message id")
    if is_shared:
        own = f"{token or ''}\0{user or ''}".encode()
        key ^= int.from_bytes(shake_128(own).digest(8))
    bits = f"{key:016x}"
    second = int(bits[8:12], 16) ^ (seq_id >> 48 & 0xFFFF)
    third, fourth = int(bits[12:15], 16), int(bits[12:16], 16) & 0x3FFF | 0x8000
    return f"{bits[:8]}-{second:04x}-8{third:03x}-{fourth:04x}-{seq_id & (1 << 48) - 1:012x}"


def fake_token(job: Job, seq_id: int) -> bytes:
    """As many characters as a real one, made of the job and the seq_id."""
    made = shake_128(choices.choice_key(job.key, "fake token").to_bytes(8) + seq_id.to_bytes(8, signed=True))
    return b"FAKE-" + bytes(ALPHABET[byte % 36] for byte in made.digest(TOKEN_CHARACTERS[job.service]))


def pick(names: Sequence[str], key: int, device: Device) -> str:
    """The name that falls to the device's user, or to the device where it names none."""
    seq_id, user = device[:2]
    return names[mix(key, crc32(user.encode()) if user else seq_id) % len(names)]


def mix(key: int, number: int) -> int:
    """64 uniform bits; no two numbers of 64 bits, signed or not, give the same under one key."""
    x = (key + number * 0x9E37_79B9_7F4A_7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58_476D_1CE4_E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D0_49BB_1331_11EB) & MASK
    return x ^ (x >> 31)
