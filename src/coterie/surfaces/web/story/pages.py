"""Pages of stories: the chats, one chat, the prompt inspector, and search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response

from coterie.base.values import Int64
from coterie.characters import STARTER_NAMES, CharacterPictures, starter_character, starter_summary
from coterie.conversation import NoSuchTurn
from coterie.eventstore import Store
from coterie.llm import Models, Role
from coterie.modes.story import Activity, Chat, PromptQueries, ReadMarks, StoryService
from coterie.surfaces.web.shared.dependencies import (
    CharacterPicturesDep,
    CharactersDep,
    ModelsDep,
    PersonasDep,
    StoreDep,
    StoryDep,
)
from coterie.surfaces.web.shared.labels import DisplayNamesDep
from coterie.surfaces.web.shared.messages import N_, gettext
from coterie.surfaces.web.shared.prose import clean_line, excerpt, show_invisible
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response
from coterie.surfaces.web.story.live import TurnRendererDep
from coterie.surfaces.web.story.schemas import PromptPartResponse, PromptResponse

router = PageRouter(prefix="/chats")
_SIDEBAR_CHATS = 100


@dataclass(frozen=True)
class ChatRow:
    """A chat as the list shows it."""

    id: str
    title: str
    host: str
    guests: list[str]
    snippet: str
    snippet_by: str
    clock: datetime
    at: datetime | None
    unread: int
    speaking: bool
    forked: bool
    pinned: bool = False
    tags: Sequence[str] = ()


View = Literal["active", "archived", "deleted"]
Sort = Literal["latest", "title", "created", "unread"]
_SORT_LABELS: dict[str, str] = {
    "latest": N_("Latest"),
    "title": N_("Title"),
    "created": N_("Newest"),
    "unread": N_("Unread"),
}


@router.get("")
async def chats(
    store: StoreDep,
    characters: CharactersDep,
    story: StoryDep,
    request: Request,
    view: View = "active",
    sort: Sort = "latest",
    tag: Annotated[str, Query(max_length=200)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    listed = _listed(store, story, view, sort, tag, q)
    known = characters.all()
    meet = [(key, starter_character(key).name, starter_summary(key)) for key in STARTER_NAMES] if not known else []
    return page_response(
        request,
        "story/chats.html",
        chats=listed,
        any_chats=bool(story.chats.chats() or story.chat_list.deleted()),
        deleted=story.chat_list.deleted() if view == "deleted" else [],
        characters=known,
        meet=meet,
        view=view,
        sort=sort,
        sorts=[(key, gettext(label)) for key, label in _SORT_LABELS.items()],
        tag=tag,
        tags=sorted({one for tags in story.chat_list.tags().values() for one in tags}),
        q=q,
    )


@router.get("/sidebar")
async def sidebar(
    store: StoreDep, story: StoryDep, chat: str = "", q: Annotated[str, Query(max_length=200)] = "", tag: str = ""
) -> Response:
    """The list of chats beside a chat."""
    rows = _listed(store, story, "active", "latest", tag, q)[:_SIDEBAR_CHATS]
    return fragment_response("story/sidebar.html", chats=rows, open_chat=chat)


def _listed(store: Store, story: StoryService, view: View, sort: Sort, tag: str, q: str) -> list[ChatRow]:
    """The chats of a view that match; pinned ones first."""
    if view == "deleted":
        return []
    archived, pinned, tags = story.chat_list.archived(), story.chat_list.pinned(), story.chat_list.tags()
    rows = [
        _chat_row(store, story, chat, pinned=chat.room in pinned, tags=tags.get(chat.room, []))
        for chat in story.chats.chats()
        if (chat.room in archived) is (view == "archived") and (not tag or tag in tags.get(chat.room, []))
    ]
    if wanted := q.strip().casefold():
        rows = [row for row in rows if wanted in " ".join([row.title, row.host, *row.guests, *row.tags]).casefold()]
    match sort:
        case "title":
            rows.sort(key=lambda row: row.title.casefold())
        case "created":
            rows.sort(key=lambda row: row.id, reverse=True)
        case "unread":
            rows.sort(key=lambda row: (row.unread > 0, *_latest(row)), reverse=True)
        case _:
            rows.sort(key=_latest, reverse=True)
    return sorted(rows, key=lambda row: not row.pinned)


@router.get("/{chat}")
async def show(
    characters: CharactersDep,
    story: StoryDep,
    models: ModelsDep,
    personas: PersonasDep,
    pictures: CharacterPicturesDep,
    renderer: TurnRendererDep,
    request: Request,
    chat: str,
) -> Response:
    if emptied := await story.emptied_by_reset(f"room:{chat}"):
        return page_response(
            request,
            "story/reset_chat.html",
            here="/chats",
            chat=chat,
            character=characters.get(emptied),
            undoable=await story.can_undo_reset(emptied),
        )
    story_chat = story.chats.chat(f"room:{chat}")
    at, html, before = await renderer.latest_turns(story_chat.room)
    others = [character for character in characters.all() if character.id not in story_chat.characters]
    return page_response(
        request,
        "story/chat.html",
        chat=story_chat,
        cast=_speakers(story, story_chat),
        host=characters.get(story_chat.host),
        others=others,
        turns=html,
        before=before,
        at=at,
        quick_replies=story.bookmarks.quick_replies(),
        personas=[("", gettext("%(name)s (your profile)", name=clean_line(characters.owner().name)))]
        + [(one.id, clean_line(one.name)) for one in personas.all()],
        spent=_spent(models),
        **await _scenery(story, pictures, story_chat),
        demo_model=models.catalogue.uses_bundled(Role.NARRATIVE),
    )


@router.get("/{chat}/tree")
async def tree(story: StoryDep, request: Request, chat: str) -> Response:
    """Where the chat was forked, and which replies have alternatives."""
    branch = await story.chat_list.tree(f"room:{chat}")
    return page_response(request, "story/tree.html", here="/chats", tree=branch, open_chat=chat)


@router.get("/{chat}/head")
async def head(characters: CharactersDep, story: StoryDep, pictures: CharacterPicturesDep, chat: str) -> Response:
    story_chat = story.chats.chat(f"room:{chat}")
    others = [character for character in characters.all() if character.id not in story_chat.characters]
    return fragment_response(
        "story/chat_header.html",
        chat=story_chat,
        cast=_speakers(story, story_chat),
        others=others,
        moods=(await _scenery(story, pictures, story_chat))["moods"],
    )


@router.get("/{chat}/scenery")
async def scenery(story: StoryDep, pictures: CharacterPicturesDep, chat: str) -> Response:
    """The picture of the present place, and the expressions of those present."""
    return fragment_response("story/scenery.html", **await _scenery(story, pictures, story.chats.chat(f"room:{chat}")))


@router.get("/{chat}/turns")
async def older(
    story: StoryDep, renderer: TurnRendererDep, chat: str, before: Annotated[Int64, Query(ge=1)]
) -> Response:
    """Older turns; the `X-Before` header is the position for the next request."""
    story_chat = story.chats.chat(f"room:{chat}")
    _, html, further = await renderer.latest_turns(story_chat.room, before)
    return Response(html, media_type="text/html", headers={"X-Before": str(further or ""), "Vary": "Accept"})


@router.get("/{chat}/drawer")
async def drawer(story: StoryDep, models: ModelsDep, pictures: CharacterPicturesDep, chat: str) -> Response:
    story_chat = story.chats.chat(f"room:{chat}")
    names = {entity: clean_line(name) for entity, name in story.participants.names(story_chat).items()}
    seen = story.details(story_chat.room)
    here = story.chats.scene(story_chat.room, story_chat.scene).container if story_chat.scene is not None else ""
    return fragment_response(
        "story/state_panel.html",
        chat=story_chat,
        names=names,
        drawer=seen,
        muted=", ".join(names[one] for one in seen.muted),
        here=here,
        moods=(await _scenery(story, pictures, story_chat))["moods"],
        analysed=models.catalogue.supports_analysis(),
    )


@router.get("/{chat}/rewind/{turn}")
async def rewind(story: StoryDep, chat: str, turn: str) -> Response:
    impact = await story.preview_rewind(f"room:{chat}", turn)
    return fragment_response("story/rewind.html", chat=chat, turn=turn, impact=impact)


@dataclass(frozen=True)
class ShownExpression:
    character: str
    name: str
    expression: str
    picture: str


async def _scenery(story: StoryService, pictures: CharacterPictures, chat: Chat) -> dict[str, Any]:
    scene = story.chats.scene(chat.room, chat.scene) if chat.scene is not None else None
    place = story.chats.containers(chat.room).get(scene.container) if scene is not None else None
    names, activities = story.participants.names(chat), story.chats.activities(chat.room)
    shown = []
    for character in chat.characters:
        activity = activities.get(character, Activity())
        expression = await asyncio.to_thread(pictures.for_mood, character, activity.status)
        if expression is not None:
            shown.append(ShownExpression(character, clean_line(names[character]), expression.name, expression.picture))
    return {
        "background": place.background if place is not None else "",
        "place": place.name if place is not None else "",
        "expressions": shown,
        "moods": {one.character: f"/pictures/{one.picture}" for one in shown},
    }


def _speakers(story: StoryService, chat: Chat) -> list[tuple[str, str]]:
    """Who can answer: the host first, then the guests."""
    names = story.participants.names(chat)
    return [(character, clean_line(names[character])) for character in chat.characters]


def _chat_row(
    store: Store, story: StoryService, chat: Chat, *, pinned: bool = False, tags: Sequence[str] = ()
) -> ChatRow:
    latest = story.timeline.last_with_text(chat.room)
    names = {entity: clean_line(name) for entity, name in story.participants.names(chat).items()}
    return ChatRow(
        id=chat.id,
        title=clean_line(chat.title),
        host=names[chat.host],
        guests=[names[guest] for guest in chat.guests],
        snippet=excerpt(latest.text) if latest else "",
        snippet_by=names.get(latest.speaker, "") if latest else "",
        clock=chat.clock,
        at=latest.at if latest else None,
        unread=ReadMarks(store).unread(chat.room),
        speaking=story.replies.is_running(chat.room),
        forked=chat.world == chat.room,
        pinned=pinned,
        tags=tuple(map(clean_line, tags)),
    )


def _latest(chat: ChatRow) -> tuple[bool, datetime | None]:
    return chat.at is not None, chat.at


def _spent(models: Models) -> str:
    """Today's spending, for the status line."""
    total = models.ledger.total()
    if not total.usd_micros:
        return gettext("nothing spent today")
    dollars = f"{total.usd_micros / 1e6:.2f}"
    if total.assumed_micros:
        return gettext("about $%(dollars)s today", dollars=dollars)
    return gettext("$%(dollars)s today", dollars=dollars)


# The prompt inspector: the exact prompt of a reply, what was left out, and why. Secrets are redacted.


prompt_pages = PageRouter(prefix="/chats")
_TIERS = {
    "must": N_("Always included"),
    "should": N_("Included if it fits"),
    "nice": N_("Included while there is room"),
}


@dataclass(frozen=True)
class PromptSlice:
    """Parts of one kind: `memory abc` and `memory def` are both memories."""

    label: str
    tokens: int
    tier: str


@prompt_pages.get("/{chat}/prompt/{reply}")
async def inspect(store: StoreDep, story: StoryDep, request: Request, chat: str, reply: str) -> Response:
    story_chat = story.chats.chat(f"room:{chat}")
    prompt = PromptResponse.of(PromptQueries(store).inspect(story_chat.room, reply))
    names = story.participants.names(story_chat)
    turn = story.timeline.turn(story_chat.room, reply)
    labels = _Labels(story, story_chat, names)
    parts = [part.model_copy(update={"name": show_invisible(labels.of(part.name))}) for part in prompt.parts]
    return page_response(
        request,
        "story/prompt.html",
        chat=story_chat,
        prompt=prompt,
        parts=parts,
        slices=_slices(parts),
        tiers=_TIERS,
        speaker=story.participants.name(names, turn.speaker),
        turn=turn,
        said=excerpt(turn.text, 160).strip('"“”'),
        most=max((abs(v) for why in prompt.why for name, v in why.parts.items() if name != "start"), default=1.0)
        or 1.0,
    )


class _Labels:
    """Labels of prompt parts, with names instead of ids."""

    def __init__(self, story: StoryService, chat: Chat, names: dict[str, str]) -> None:
        self._story = story
        self._chat = chat
        self._names = names

    def of(self, name: str) -> str:
        first, _, rest = name.partition(" ")
        if first == "turn" and rest:
            return f"turn · {self._speaker(rest)}"
        if first in ("memory", "pinned") and rest:
            return "memory" if first == "memory" else "pinned memory"
        return " ".join(self._names.get(word, word) for word in name.split())

    def _speaker(self, turn: str) -> str:
        try:
            said_turn = self._story.timeline.turn(self._chat.room, turn)
        except NoSuchTurn:
            return gettext("removed since")
        return self._story.participants.name(self._names, said_turn.speaker)


def _slices(parts: list[PromptPartResponse]) -> list[PromptSlice]:
    sums: dict[tuple[str, str], int] = {}
    for part in parts:
        key = (_sort(part.name), part.tier)
        sums[key] = sums.get(key, 0) + part.tokens
    order = list(_TIERS)
    slices = [PromptSlice(label, tokens, tier) for (label, tier), tokens in sums.items()]
    return sorted(slices, key=lambda one: order.index(one.tier))


def _sort(label: str) -> str:
    """The kind of a part: all turns together; `voice 1` and `voice 2` are both voice."""
    return "turns" if label.startswith("turn ·") else label.rstrip("0123456789 ")


# Search over all chats


search_pages = PageRouter(prefix="/search")
_PAGE = 30


@search_pages.get("")
async def find(
    story: StoryDep,
    display_names: DisplayNamesDep,
    request: Request,
    q: Annotated[str, Query(max_length=1_000)] = "",
    chat: Annotated[str, Query(max_length=200)] = "",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    room = story.chats.chat(f"room:{chat}").room if chat else None
    asked = q.strip()
    hits = story.search(asked, room=room, limit=_PAGE, offset=offset) if asked else []
    more = offset + _PAGE if len(hits) == _PAGE else 0
    context: dict[str, Any] = {"hits": hits, "q": asked, "chat": chat, "more": more}
    if offset:
        return fragment_response("story/search_results.html", **context)
    chats = {room.partition(":")[2]: title for room, title in display_names.rooms.items()}
    return page_response(request, "story/search.html", here="/chats", chats=chats, **context)
