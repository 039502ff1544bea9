"""Where does the demo keep its data? In one directory, which git ignores."""

from __future__ import annotations

import os
import sys
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

# demo_flights empties its directory, so it has one of its own: a site that is being
# looked at is left alone.
_USE = "flights" if "demo_flights" in sys.argv[1:2] else "site"
DIRECTORY = Path(os.environ.get("DEMO_DIRECTORY") or BASE_DIR / ".groupqueue" / _USE).resolve()
# For the programs that the commands start.
os.environ["DEMO_DIRECTORY"] = str(DIRECTORY)
