"""Starting a character's life over: what it lived through, remembered and felt stops counting; who it is stays. S25"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.cast.roster import YOU, reset_draft
from coterie.kernel import Draft, Reset, Store, Superseded
from coterie.kernel.ranges import Ranges
from coterie.modes.story.chats import ChatBook
from coterie.modes.story.events import EdgesCleared, GuestLeft


def reset_drafts(store: Store, chats: ChatBook, bot: str) -> list[Draft]:
    """To be recorded in one transaction."""
    drafts = [reset_draft(bot)]
    hosted = {chat.room for chat in chats.chats(host=bot)}
    drafts += [Draft(room, Reset(), YOU) for room in sorted(hosted)]
    visited = [chat for chat in chats.chats() if chat.room not in hosted]
    drafts += [Draft(chat.room, GuestLeft(guest=bot), YOU) for chat in visited if bot in chat.guests]
    # Memories may be kept beside chats too: those that came with an import.
    remembered = {room for (room,) in store.query("SELECT DISTINCT stream FROM memory WHERE owner = ?", (bot,))}
    for room in sorted(({chat.room for chat in visited} | remembered) - hosted):
        if lived := _lived_through(store, room, bot):
            drafts.append(Draft(room, superseded(lived), YOU))
    pairs = store.query("SELECT world, of, toward FROM edge WHERE of = ?1 OR toward = ?1", (bot,))
    if pairs:
        cleared = EdgesCleared(pairs=tuple((world, of, toward) for world, of, toward in pairs))
        drafts.append(Draft(f"cast:{bot}", cleared, YOU))
    return drafts


def superseded(drop: Sequence[int], restore: Sequence[int] = ()) -> Superseded:
    pairs = [Ranges((seq, seq) for seq in seqs).pairs for seqs in (drop, restore)]
    return Superseded(drop=pairs[0], restore=pairs[1])


def _lived_through(store: Store, room: str, bot: str) -> list[int]:
    """What a room and the line it was forked from let somebody remember. What was forgotten stays forgotten."""
    rows = store.query(
        "SELECT seq FROM event WHERE stream = ? AND (kind LIKE 'memory_%' OR kind = 'scene_summarised')"
        " AND kind <> 'memory_forgotten' AND json_extract(payload, '$.owner') = ?",
        (room, bot),
    )
    seqs = [seq for (seq,) in rows]
    origin = store.reader.origin(room)
    if origin is not None:
        seqs = [*(seq for seq in _lived_through(store, origin[0], bot) if seq <= origin[1]), *seqs]
    return seqs
