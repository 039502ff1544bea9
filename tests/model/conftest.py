"""Which runs take the model along? Those of `make model`, which say how many examples they want."""

from __future__ import annotations

import os

collect_ignore = [] if "MODEL_EXAMPLES" in os.environ else ["test_model.py"]
