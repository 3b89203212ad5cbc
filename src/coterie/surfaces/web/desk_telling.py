"""What an open page is told of a desk: that something happened. It then asks for what it shows.

Fifty workers record fifty things a second; a page looks twice a second at most, so what happens in between is told
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from coterie.engine.replies import Live
from coterie.surfaces.web.house import House
from coterie.surfaces.web.telling import News, resumed

_TICK_S = 0.5


async def desk_news(house: House, room: str, after: int) -> AsyncIterator[News]:
    whole = not resumed(house, after)
    async with house.feed.follow(room, None if whole else after) as following:
        yield News("timeline" if whole else "caught-up", {}, following.after)
        told = 0.0
        loop = asyncio.get_running_loop()
        async for news in following:
            if isinstance(news, Live):
                continue
            # The last of a burst is told too: the wait is before telling, and what comes meanwhile is read with it.
            if (rest := told + _TICK_S - loop.time()) > 0:
                await asyncio.sleep(rest)
            told = loop.time()
            yield News("aside", {"kind": news.kind, "model": ""}, news.id)
