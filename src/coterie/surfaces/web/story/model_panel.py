"""The model panel of a chat: sampler preset and values, author's note, and how the token budget is used."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query, Request, Response, status
from pydantic import Field, JsonValue, model_validator

from coterie.base.offload import run_limited
from coterie.base.values import is_text
from coterie.llm import Models, Role, import_sillytavern
from coterie.modes.story import AuthorNote, Chat, ModelChoice, StoryService
from coterie.surfaces.web.shared.dependencies import (
    FILE_BODY,
    CharactersDep,
    ModelsDep,
    ModelSetupDep,
    StoryDep,
    read_upload,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.messages import N_, gettext
from coterie.surfaces.web.shared.prose import clean_line
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response
from coterie.surfaces.web.story.schemas import RequestModel, ResponseModel

router = APIRouter(tags=["models"], responses=ERROR_RESPONSES)
pages = PageRouter(prefix="/chats")

# name → label, step and hint of the fields of the panel
_NUMBERS = {
    "temperature": (N_("Temperature"), "0.05", N_("Higher is more varied.")),
    "top_p": (N_("Top P"), "0.01", N_("The most likely words that together have this probability.")),
    "top_k": (N_("Top K"), "1", N_("Only so many of the most likely words.")),
    "min_p": (N_("Min P"), "0.01", N_("Words at least this likely, compared with the likeliest.")),
    "repetition_penalty": (N_("Repetition penalty"), "0.01", N_("Above 1, repeated words are less likely.")),
    "presence_penalty": (N_("Presence penalty"), "0.05", N_("Above 0, words that occurred are less likely.")),
    "frequency_penalty": (N_("Frequency penalty"), "0.05", N_("Above 0, frequent words are less likely.")),
    "dry_multiplier": (N_("DRY"), "0.05", N_("How strongly repeated phrases are avoided.")),
    "seed": (N_("Seed"), "1", N_("The same seed gives the same answer.")),
    "max_tokens": (N_("Longest reply, in tokens"), "1", ""),
}


class ModelChoiceRequest(RequestModel):
    preset: Annotated[str, Field(max_length=100)] = ""
    """The name of a sampler preset; empty for none."""
    values: Annotated[dict[str, JsonValue], Field(max_length=40, default_factory=dict)]
    """Single values, such as `temperature`, which go before those of the preset; null for none."""
    note: AuthorNote = AuthorNote()

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        if not is_text(json.dumps([self.preset, self.values, self.note.text], ensure_ascii=False)):
            raise ValueError("it contains a character that cannot be stored (half of a surrogate pair)")
        return self

    def choice(self) -> ModelChoice:
        values = {name: value for name, value in self.values.items() if value not in (None, "", [], {})}
        return ModelChoice(preset=self.preset, values=values, note=self.note)


class ModelPanelResponse(ResponseModel):
    chat: dict[str, JsonValue]
    character: dict[str, JsonValue]
    """Of the character that the chat is with; the chat's own choice goes before it."""
    presets: dict[str, dict[str, JsonValue]]
    supported: list[str]
    """The values that the provider of the model understands; others are not sent."""
    applied: dict[str, JsonValue]
    """The values of the next reply."""


class SamplerPresetResponse(ResponseModel):
    name: str
    values: dict[str, JsonValue]
    unused: tuple[str, ...] = ()
    """Names in the file that have no meaning here."""


@router.get("/chats/{chat}/model", summary="How the model of a chat is set up")
async def show(story: StoryDep, models: ModelsDep, chat: str) -> ModelPanelResponse:
    return _panel(story, models, story.chats.chat(f"room:{chat}"))


@router.put("/chats/{chat}/model", summary="Set up the model of a chat: preset, values and author's note")
async def set_for_chat(story: StoryDep, models: ModelsDep, chat: str, body: ModelChoiceRequest) -> ModelPanelResponse:
    story_chat = story.chats.chat(f"room:{chat}")
    await story.choices.set_for_chat(story_chat.room, body.choice())
    return _panel(story, models, story_chat)


@router.put("/characters/{character_id}/model", summary="Set up the model of a character, for all its chats")
async def set_for_character(
    story: StoryDep, characters: CharactersDep, character_id: str, body: ModelChoiceRequest
) -> dict[str, JsonValue]:
    character = characters.get(character_id)
    await story.choices.set_for_character(character.id, body.choice())
    return story.choices.for_character(character.id).model_dump(mode="json")


@router.get("/models/samplers", summary="All sampler presets")
async def list_presets(models: ModelsDep) -> list[SamplerPresetResponse]:
    presets = models.catalogue.sampler_presets()
    return [SamplerPresetResponse(name=name, values=sampler.chosen()) for name, sampler in presets.items()]


@router.post(
    "/models/samplers/import",
    summary="Import a sampler preset of SillyTavern",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_preset(
    setup: ModelSetupDep, request: Request, name: Annotated[str, Query(min_length=1, max_length=200)]
) -> SamplerPresetResponse:
    """The name may be that of the file."""
    data = await read_upload(request)
    sampler, unused = await run_limited("Reading the preset", len(data), import_sillytavern, data)
    name = " ".join(name.removesuffix(".json").split())[:100]
    await setup.save_sampler(name, sampler)
    return SamplerPresetResponse(name=name, values=sampler.chosen(), unused=tuple(unused))


@router.delete("/models/samplers/{name}", summary="Remove a sampler preset", status_code=status.HTTP_204_NO_CONTENT)
async def remove_preset(setup: ModelSetupDep, name: str) -> None:
    await setup.remove_sampler(name)


@pages.get("/{chat}/model")
async def panel(story: StoryDep, models: ModelsDep, characters: CharactersDep, chat: str) -> Response:
    story_chat = story.chats.chat(f"room:{chat}")
    shown = _panel(story, models, story_chat)
    prompt = story.prompts.assemble(story_chat, story_chat.host, "preview").sent
    parts: dict[str, int] = {}
    for part in prompt.parts:
        parts[part.tier] = parts.get(part.tier, 0) + part.tokens
    labels = {
        "must": gettext("Always included"),
        "should": gettext("If it fits"),
        "nice": gettext("While there is room"),
    }
    return fragment_response(
        "story/model_panel.html",
        chat=story_chat,
        panel=shown,
        for_chat=story.choices.for_chat(story_chat.room),
        for_character=story.choices.for_character(story_chat.host),
        numbers=_NUMBERS,
        host=clean_line(characters.get(story_chat.host).name),
        prompt=prompt,
        slices=[(label, parts.get(tier, 0), tier) for tier, label in labels.items()],
        model=str(models.catalogue.chain(Role.NARRATIVE)[0]),
    )


def _panel(story: StoryService, models: Models, chat: Chat) -> ModelPanelResponse:
    target = models.catalogue.chain(Role.NARRATIVE)[0]
    chosen = story.choices.sampler(models.catalogue, chat.room, chat.host)
    presets: dict[str, dict[str, Any]] = {
        name: sampler.chosen() for name, sampler in models.catalogue.sampler_presets().items()
    }
    return ModelPanelResponse(
        chat=story.choices.for_chat(chat.room).model_dump(mode="json"),
        character=story.choices.for_character(chat.host).model_dump(mode="json"),
        presets=presets,
        supported=sorted(models.catalogue.supported_values(target)),
        applied=models.catalogue.sampler(target, chosen).chosen(),
    )
