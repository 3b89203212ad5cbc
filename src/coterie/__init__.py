"""Coterie: a local-first, event-sourced server for AI characters with long-term memory.

The event log is the source of truth; all other state is a projection that can be rebuilt from it.
"""

import os

__version__ = "0.1.0"

# Some libraries send telemetry unless these variables are set before they are imported.
for _variable in ("DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY"):
    os.environ.setdefault(_variable, "1")
