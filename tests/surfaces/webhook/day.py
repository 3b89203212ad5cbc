"""One day of a house, in a process of its own: somebody says something with the real client, and that is all.

`python -m tests.surfaces.webhook.day FOLDER MOMENT TEXT REPLY` prints what was answered and what the model was told.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path

import openai

from coterie.base.clock import ManualClock
from tests.surfaces.webhook.conftest import serving


async def day(folder: str, moment: str, text: str, reply: str) -> None:
    async with serving(Path(folder), ManualClock(datetime.fromisoformat(moment))) as served:
        served.script.replies = [reply]
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as ai:
            completion = await ai.chat.completions.create(model="Mara", messages=[{"role": "user", "content": text}])
        await served.settle()
        print(json.dumps({"said": completion.choices[0].message.content, "prompt": served.script.prompt()}))


if __name__ == "__main__":
    asyncio.run(day(*sys.argv[1:]))
