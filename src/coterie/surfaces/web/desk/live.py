"""What an open page is told of a desk: that something happened. It then asks for what it shows.

Fifty workers record fifty things a second; a page looks twice a second at most, so what happens in between is told
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from coterie.conversation.replies import LiveText
from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.story.live import LiveUpdate, can_resume

_TICK_S = 0.5


async def desk_updates(house: House, room: str, after: int) -> AsyncIterator[LiveUpdate]:
    whole = not can_resume(house, after)
    async with house.feed.follow(room, None if whole else after) as following:
        yield LiveUpdate("timeline" if whole else "caught-up", {}, following.after)
        told = 0.0
        loop = asyncio.get_running_loop()
        async for news in following:
            if isinstance(news, LiveText):
                continue
            # The last of a burst is told too: the wait is before telling, and what comes meanwhile is read with it.
            if (rest := told + _TICK_S - loop.time()) > 0:
                await asyncio.sleep(rest)
            told = loop.time()
            yield LiveUpdate("changed", {"kind": news.kind, "model": ""}, news.id)
