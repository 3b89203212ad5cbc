"""What ships ready-made: personas, rooms and moderation lists. A person's own files of the same name win."""

from __future__ import annotations

from pathlib import Path

SHIPPED_CONFIGS = Path(__file__).parent
