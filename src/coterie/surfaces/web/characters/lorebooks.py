"""Lorebooks: the API, the list, and the editor with its preview."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response, status
from pydantic import BaseModel, Field

from coterie.base.values import Key, Name, Prose, Text, is_text
from coterie.characters import (
    BadEntry,
    BookFields,
    EntryFields,
    Lorebook,
    Lorebooks,
    LoreContext,
    Macros,
    StoredLorebook,
    as_world_info,
    book_fields,
    entry_fields,
    preview_lore,
)
from coterie.modes.story import StoryService
from coterie.surfaces.web.shared.dependencies import (
    FILE_BODY,
    CharactersDep,
    LorebooksDep,
    StoryDep,
    read_upload,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.messages import gettext
from coterie.surfaces.web.shared.prose import clean_line, excerpt
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response
from coterie.surfaces.web.story.schemas import DoneResponse, ResponseModel

router = APIRouter(prefix="/lorebooks", tags=["lorebooks"], responses=ERROR_RESPONSES)
_Ids = Annotated[list[Annotated[Text, Field(min_length=1, max_length=200)]], Field(max_length=10_000)]
_PREVIEW_MESSAGES = 20


class LorebookRequest(BaseModel):
    name: Name


class AssignRequest(BaseModel):
    """Where a lorebook is used."""

    everywhere: bool = False
    characters: _Ids = []
    chats: _Ids = []


class PreviewRequest(BaseModel):
    """A text to try: in one lorebook, or in all that a chat uses, after its last messages."""

    text: Prose
    book: Annotated[Text, Field(max_length=200)] = ""
    chat: Annotated[Text, Field(max_length=200)] = ""


class LorebookResponse(ResponseModel):
    id: str
    name: str
    entries: int
    everywhere: bool
    characters: list[str]
    chats: list[str]
    card_of: str
    """The character whose card it is in; empty for one of its own."""

    @classmethod
    def of(cls, stored: StoredLorebook) -> LorebookResponse:
        return cls(
            id=stored.id,
            name=stored.name,
            entries=len(stored.book.entries),
            everywhere=stored.everywhere,
            characters=list(stored.characters),
            chats=[chat.partition(":")[2] for chat in stored.chats],
            card_of=stored.card_of,
        )


class LorebookWithEntries(LorebookResponse):
    settings: dict[str, Any]
    fields: dict[str, dict[str, Any]]
    """The entries by key."""

    @classmethod
    def with_entries(cls, stored: StoredLorebook) -> LorebookWithEntries:
        book = stored.book
        fields = {entry.key: entry_fields(book, entry.key).model_dump(mode="json") for entry in book.entries}
        response = LorebookResponse.of(stored).model_dump()
        return cls(**response, settings=book_fields(book).model_dump(mode="json"), fields=fields)


class EntryResponse(ResponseModel):
    entry: str


class RemovedEntry(ResponseModel):
    entry: str
    fields: dict[str, Any]
    """As it was in its lorebook; `restore` takes it again."""


class RestoreEntryRequest(BaseModel):
    entry: Annotated[Key, Field(min_length=1)]
    fields: dict[str, Any]


class PreviewEntry(ResponseModel):
    book: str
    entry: str
    name: str
    fires: bool
    why: str
    tokens: int


@router.get("", summary="All lorebooks: those of their own first, then those in cards")
async def list_lorebooks(lorebooks: LorebooksDep) -> list[LorebookResponse]:
    return await asyncio.to_thread(
        lambda: [LorebookResponse.of(one) for one in (*lorebooks.all(), *lorebooks.in_cards())]
    )


@router.post("", summary="Create a lorebook", status_code=status.HTTP_201_CREATED)
async def create(lorebooks: LorebooksDep, body: LorebookRequest) -> LorebookResponse:
    return LorebookResponse.of(await lorebooks.create(body.name))


@router.post(
    "/import",
    summary="Import a lorebook: SillyTavern's world info, or lorebook_v3",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_lorebook(
    lorebooks: LorebooksDep, request: Request, name: Annotated[str, Query(max_length=200)] = ""
) -> LorebookResponse:
    return LorebookResponse.of(await lorebooks.import_file(await read_upload(request), name))


@router.post("/preview", summary="Which entries a text would bring into the prompt, and why")
async def preview(lorebooks: LorebooksDep, story: StoryDep, body: PreviewRequest) -> list[PreviewEntry]:
    return await asyncio.to_thread(_preview, lorebooks, story, body)


@router.get("/{book}", summary="A lorebook with its entries")
async def show(lorebooks: LorebooksDep, book: str) -> LorebookWithEntries:
    return await asyncio.to_thread(lambda: LorebookWithEntries.with_entries(lorebooks.get(book)))


@router.put("/{book}", summary="Change the settings of a lorebook")
async def save_settings(lorebooks: LorebooksDep, book: str, body: BookFields) -> LorebookResponse:
    return LorebookResponse.of(await lorebooks.save_settings(book, body))


@router.put("/{book}/use", summary="Decide where a lorebook is used")
async def assign(lorebooks: LorebooksDep, story: StoryDep, book: str, body: AssignRequest) -> LorebookResponse:
    chats = [story.chats.chat(f"room:{chat}").room for chat in body.chats]
    await lorebooks.assign(book, everywhere=body.everywhere, characters=body.characters, chats=chats)
    return LorebookResponse.of(lorebooks.get(book))


@router.delete("/{book}", summary="Delete a lorebook; it can be restored")
async def delete(lorebooks: LorebooksDep, book: str) -> DoneResponse:
    await lorebooks.delete(book)
    return DoneResponse()


@router.post("/{book}/restore", summary="Restore a deleted lorebook")
async def restore(lorebooks: LorebooksDep, book: str) -> LorebookResponse:
    return LorebookResponse.of(await lorebooks.restore(book))


@router.post("/{book}/entries", summary="Add an entry", status_code=status.HTTP_201_CREATED)
async def add_entry(lorebooks: LorebooksDep, book: str, body: EntryFields) -> EntryResponse:
    return EntryResponse(entry=await lorebooks.save_entry(book, "", body))


@router.put("/{book}/entries/{entry}", summary="Change an entry; what the form does not have stays")
async def save_entry(lorebooks: LorebooksDep, book: str, entry: str, body: EntryFields) -> EntryResponse:
    return EntryResponse(entry=await lorebooks.save_entry(book, entry, body))


@router.delete("/{book}/entries/{entry}", summary="Remove an entry")
async def remove_entry(lorebooks: LorebooksDep, book: str, entry: str) -> RemovedEntry:
    return RemovedEntry(entry=entry, fields=await lorebooks.remove_entry(book, entry))


@router.post("/{book}/entries/restore", summary="Restore an entry that was removed")
async def restore_entry(lorebooks: LorebooksDep, book: str, body: RestoreEntryRequest) -> EntryResponse:
    if not is_text(json.dumps([body.entry, body.fields], ensure_ascii=False)):
        raise BadEntry("The entry contains a character that cannot be stored.", "Remove half surrogate pairs.")
    await lorebooks.restore_entry(book, body.entry, body.fields)
    return EntryResponse(entry=body.entry)


@router.get("/{book}/export", summary="A lorebook as a file", response_class=Response)
async def export(
    lorebooks: LorebooksDep,
    book: str,
    kind: Annotated[Literal["lorebook", "world_info"], Query(alias="format")] = "lorebook",
) -> Response:
    """As `lorebook_v3`, or as SillyTavern's world info."""

    def write() -> tuple[str, str]:
        stored = lorebooks.get(book)
        document = as_world_info(stored.book) if kind == "world_info" else stored.book.standalone()
        return json.dumps(document, ensure_ascii=False, indent=2), f"{stored.id.replace(':', '-')}.{kind}.json"

    text, name = await asyncio.to_thread(write)
    return Response(
        text,
        media_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _preview(lorebooks: Lorebooks, story: StoryService, body: PreviewRequest) -> list[PreviewEntry]:
    books, context = _preview_context(lorebooks, story, body)
    return [PreviewEntry(**vars(one)) for one in preview_lore(books, context)]


def _preview_context(
    lorebooks: Lorebooks, story: StoryService, body: PreviewRequest
) -> tuple[dict[str, Lorebook], LoreContext]:
    messages, seed, user, count = [body.text], body.text, "You", 1
    books: dict[str, Lorebook] = {}
    char = ""
    if body.chat:
        chat = story.chats.chat(f"room:{body.chat}")
        host = story.context.characters.get(chat.host)
        user, char = story.participants.names(chat)[chat.person], host.name
        messages = [turn.text for turn in story.timeline.latest(chat.room, _PREVIEW_MESSAGES)] + messages
        count = story.timeline.count(chat.room) + 1
        books = lorebooks.used_in([chat.room], host.id, host.card)
    if body.book:
        books = {body.book: lorebooks.get(body.book).book}
    macros = Macros(char=char, user=user, rng=Random(seed), seed=seed)  # noqa: S311 - repeatable, not secret
    matched = story.prompts.sent_prompts.lore_matches(f"room:{body.chat}") if body.chat else {}
    context = LoreContext(messages=messages, message_count=count, matched_before=matched, seed=seed, macros=macros)
    return books, context


# Pages


pages = PageRouter(prefix="/lorebooks")


@pages.get("")
async def index(lorebooks: LorebooksDep, characters: CharactersDep, request: Request) -> Response:
    names = {character.id: clean_line(character.name) for character in characters.all()}
    own, in_cards = await asyncio.to_thread(lambda: (lorebooks.all(), lorebooks.in_cards()))
    return page_response(
        request,
        "characters/lorebooks.html",
        here="/characters",
        own=own,
        in_cards=in_cards,
        names=names,
    )


@pages.get("/{book}")
async def edit(
    lorebooks: LorebooksDep, characters: CharactersDep, story: StoryDep, request: Request, book: str
) -> Response:
    stored = await asyncio.to_thread(lorebooks.get, book)
    entries = await asyncio.to_thread(
        lambda: sorted(stored.book.entries, key=lambda one: (one.insertion_order, one.index))
    )
    chats = [(chat.room, chat.id, excerpt(chat.title, 80)) for chat in story.chats.chats()]
    return await asyncio.to_thread(
        page_response,
        request,
        "characters/lorebook.html",
        here="/characters",
        book=stored,
        settings=book_fields(stored.book),
        entries=entries,
        characters=[(one.id, clean_line(one.name)) for one in characters.all()],
        chats=chats,
        chat_options=[("", gettext("no chat")), *((chat, title) for _, chat, title in chats)],
    )


@pages.get("/{book}/entries/{entry}")
async def entry_form(lorebooks: LorebooksDep, book: str, entry: str) -> Response:
    stored = lorebooks.get(book)
    return fragment_response(
        "characters/lorebook_entry.html", book=stored, key=entry, entry=entry_fields(stored.book, entry)
    )
