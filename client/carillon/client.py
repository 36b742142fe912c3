"""The old place of what `carillon` offers, and `Carillon`, the old name of `AsyncCarillon`: the same class.

Both stay for one release. `carillon.Carillon` will be the synchronous client, so there is none yet.
"""

import carillon
from carillon import *  # noqa: F403
from carillon import AsyncCarillon

Carillon = AsyncCarillon

__all__ = ["Carillon"]
__all__ += carillon.__all__
