"""Coterie: a local-first engine for AI characters that remember.

The log is the only truth. Everything else is a view you can throw away.
"""

import os

__version__ = "0.1.0"

# Some libraries tell their makers how they are used, unless they are asked not to before they are imported.
for _switch in ("DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY"):
    os.environ.setdefault(_switch, "1")
