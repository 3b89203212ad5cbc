"""One message with OpenAI's client library, in a process of its own.

`python -m tests.surfaces.openai_api.single_call FOLDER TIME TEXT REPLY` prints the reply and the prompt.
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


async def send_message(folder: str, time: str, text: str, reply: str) -> None:
    async with serving(Path(folder), ManualClock(datetime.fromisoformat(time))) as served:
        served.script.replies = [reply]
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as ai:
            completion = await ai.chat.completions.create(model="Mara", messages=[{"role": "user", "content": text}])
        await served.settle()
        print(json.dumps({"said": completion.choices[0].message.content, "prompt": served.script.prompt()}))


if __name__ == "__main__":
    asyncio.run(send_message(*sys.argv[1:]))
