"""Choosing models: the API, the page (a step of the first start, and a part of the settings), and its fragments."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response, status
from pydantic import Field, SecretStr

from coterie.characters import (
    Characters,
    PromptText,
    PromptTexts,
    Workspaces,
    declared_prompts,
    find_prompt,
)
from coterie.llm import PRESETS, Download, LocalServer, ModelInfo, ProviderHealth, Role, check_providers
from coterie.memory import MemorySettings
from coterie.ops import Connection, ModelSetup
from coterie.surfaces.web.shared.dependencies import CharactersDep, ModelsDep, ModelSetupDep, WorkspacesDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response
from coterie.surfaces.web.story.schemas import RequestModel, ResponseModel

router = APIRouter(prefix="/models", tags=["models"], responses=ERROR_RESPONSES)
pages = PageRouter(prefix="/settings/models")

_KNOWN = ("openrouter", "openai", "anthropic", "google", "mistral", "groq", "together", "deepseek", "featherless")
_ANY = "openai-compatible"


class OfferedModelResponse(ResponseModel):
    name: str
    """The provider's name for it."""
    title: str
    context: int | None
    """Tokens, if the provider tells."""
    usd_per_million_in: float | None
    usd_per_million_out: float | None
    vision: bool | None

    @classmethod
    def of(cls, info: ModelInfo) -> OfferedModelResponse:
        return cls(
            name=info.name,
            title=info.title,
            context=info.context,
            usd_per_million_in=info.usd_per_million_in,
            usd_per_million_out=info.usd_per_million_out,
            vision=info.vision,
        )


class ServerResponse(ResponseModel):
    provider: str
    label: str
    base_url: str
    models: list[OfferedModelResponse]

    @classmethod
    def of(cls, server: LocalServer) -> ServerResponse:
        return cls(
            provider=server.preset,
            label=PRESETS[server.preset].label,
            base_url=server.base_url,
            models=[OfferedModelResponse.of(info) for info in server.details if not info.embedding],
        )


class ConnectionRequest(RequestModel):
    provider: Annotated[str, Field(max_length=40)]
    """A known provider, or `openai-compatible` for any address."""
    base_url: Annotated[str, Field(max_length=500)] = ""
    """The address of the API; by default the usual one of the provider."""
    key: Annotated[SecretStr, Field(max_length=1_000)] | None = None
    """The key, if the provider needs one and none is saved for this address."""

    def connection(self) -> Connection:
        return Connection(self.provider, self.base_url.strip(), self.key)


class ChooseRequest(ConnectionRequest):
    model: Annotated[str, Field(max_length=200)]
    role: Role | None = None
    """Only for this role; by default the model serves every role."""


class UseRequest(RequestModel):
    model: Annotated[str, Field(max_length=300)]
    """`provider/model` of a provider that is set up."""
    role: Role | None = None


class TestResponse(ResponseModel):
    text: str
    """The first words of the model."""
    first_s: float
    """Seconds until its first word."""


class TaskModelRequest(RequestModel):
    model: Annotated[str, Field(max_length=300)]


class EmbedderRequest(RequestModel):
    embedder: Literal["offline", "provider", "fastembed"]
    """`offline` is the built-in one, `provider` asks `/embeddings`, `fastembed` runs an ONNX model here."""
    provider: Annotated[str, Field(max_length=100)] = ""
    """The name of a provider that is set up."""
    model: Annotated[str, Field(max_length=200)] = ""


class DownloadRequest(RequestModel):
    model: Annotated[str, Field(max_length=1_000)]
    """The name of a curated model or of an interrupted download, or the URL of a GGUF file."""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-fA-F]{64})?$")] = ""
    """The checksum of the file, if it is known."""


class DownloadResponse(ResponseModel):
    name: str
    title: str
    state: Literal["waiting", "running", "checking", "done", "failed", "cancelled"]
    done: int
    total: int
    """In bytes; 0 while it is not known."""
    bytes_per_s: float
    seconds_left: float | None
    error: str

    @classmethod
    def of(cls, one: Download) -> DownloadResponse:
        return cls(
            name=one.source.name,
            title=one.source.title or one.source.name,
            state=one.state,
            done=one.done,
            total=one.total,
            bytes_per_s=round(one.bytes_per_s),
            seconds_left=None if one.seconds_left is None else round(one.seconds_left, 1),
            error=one.error,
        )


@router.get("/servers", summary="Model servers that run on this machine now, with their models")
async def servers(setup: ModelSetupDep) -> list[ServerResponse]:
    return [ServerResponse.of(server) for server in await setup.servers()]


@router.post("/list", summary="The models that a provider lists; checks the key, saves nothing")
async def list_provider(setup: ModelSetupDep, body: ConnectionRequest) -> list[OfferedModelResponse]:
    return [OfferedModelResponse.of(info) for info in await setup.models_of(body.connection())]


@router.post("/choose", summary="Test a model of a provider, then save it with the key and use it")
async def choose(setup: ModelSetupDep, body: ChooseRequest) -> TestResponse:
    result = await setup.choose(body.connection(), body.model, body.role)
    return TestResponse(text=result.text, first_s=result.first_s)


@router.post("/use", summary="Test a model of a provider that is set up, then use it")
async def use(setup: ModelSetupDep, body: UseRequest) -> TestResponse:
    result = await setup.use(body.model, body.role)
    return TestResponse(text=result.text, first_s=result.first_s)


@router.post("/demo", summary="Use the demo model for every role without a model of its own", status_code=204)
async def use_demo(setup: ModelSetupDep) -> None:
    await setup.use_demo()


@router.delete("/roles/{role}", summary="Let a role use the default model", status_code=status.HTTP_204_NO_CONTENT)
async def reset_role(setup: ModelSetupDep, role: Role) -> None:
    await setup.reset_role(role)


@router.put("/tasks/{task}", summary="Use a model for one type of task at the desk", status_code=204)
async def set_task(setup: ModelSetupDep, task: str, body: TaskModelRequest) -> None:
    await setup.set_task(task, body.model)


@router.delete("/tasks/{task}", summary="Let a type of task use the model of its role", status_code=204)
async def remove_task(setup: ModelSetupDep, task: str) -> None:
    await setup.set_task(task, None)


@router.delete("/providers/{name}", summary="Remove a provider with its key and every use of it", status_code=204)
async def remove_provider(setup: ModelSetupDep, name: str) -> None:
    await setup.remove_provider(name)


@router.put("/embedder", summary="Test an embedding model and use it; memories are embedded again", status_code=204)
async def choose_embedder(setup: ModelSetupDep, body: EmbedderRequest) -> None:
    await setup.choose_embedder(
        MemorySettings(embedder=body.embedder, embedder_provider=body.provider, embedder_model=body.model)
    )


@router.get("/health", summary="Whether the providers in use answer and accept their keys")
async def health(models: ModelsDep) -> list[ProviderHealth]:
    return await check_providers(models.catalogue)


@router.get("/downloads", summary="Downloads of models: running, ended and interrupted ones")
async def downloads(setup: ModelSetupDep) -> list[DownloadResponse]:
    return [DownloadResponse.of(one) for one in await asyncio.to_thread(setup.downloads.all)]


@router.post("/downloads", summary="Download a model, or continue a download, and use it afterwards", status_code=202)
async def download(setup: ModelSetupDep, body: DownloadRequest) -> DownloadResponse:
    return DownloadResponse.of(setup.download(body.model, body.sha256))


@router.delete("/downloads/{name}", summary="Cancel a download and delete its part", status_code=204)
async def cancel_download(setup: ModelSetupDep, name: str) -> None:
    await setup.downloads.cancel(name)


@router.delete("/downloaded/{name}", summary="Delete a downloaded model", status_code=status.HTTP_204_NO_CONTENT)
async def remove_downloaded(setup: ModelSetupDep, name: str) -> None:
    await setup.remove_downloaded(name)


# Prompts


prompts_router = APIRouter(prefix="/prompts", tags=["models"], responses=ERROR_RESPONSES)


class EditablePromptResponse(ResponseModel):
    name: str
    label: str
    about: str
    text: str
    """The text that the next call uses."""
    origin: Literal["character", "shared", "built-in"]
    fields: list[str]
    """Words in braces that are replaced, such as `name`."""

    @classmethod
    def of(cls, texts: PromptTexts, prompt: PromptText) -> EditablePromptResponse:
        text, origin = texts.read(prompt)
        fields = list(prompt.fields)
        return cls(name=prompt.name, label=prompt.label, about=prompt.about, text=text, origin=origin, fields=fields)


class PromptRequest(RequestModel):
    text: Annotated[str, Field(min_length=1, max_length=32_000)]


CharacterQuery = Annotated[str, Query(max_length=100, description="A character's id; by default all characters.")]


def _texts(workspaces: Workspaces, characters: Characters, character: str) -> PromptTexts:
    return workspaces.prompts(characters.get(character).id if character else "")


@prompts_router.get("", summary="The instructions that models get, and where each comes from")
async def prompts(
    workspaces: WorkspacesDep, characters: CharactersDep, character: CharacterQuery = ""
) -> list[EditablePromptResponse]:
    texts = _texts(workspaces, characters, character)
    return [EditablePromptResponse.of(texts, prompt) for prompt in declared_prompts()]


@prompts_router.put("/{name}", summary="Replace an instruction; the next call uses it")
async def save_prompt(
    workspaces: WorkspacesDep, characters: CharactersDep, name: str, body: PromptRequest, character: CharacterQuery = ""
) -> EditablePromptResponse:
    texts = _texts(workspaces, characters, character)
    await asyncio.to_thread(texts.save, find_prompt(name), body.text)
    return EditablePromptResponse.of(texts, find_prompt(name))


@prompts_router.delete("/{name}", summary="Reset an instruction to the shared or built-in one")
async def reset_prompt(
    workspaces: WorkspacesDep, characters: CharactersDep, name: str, character: CharacterQuery = ""
) -> EditablePromptResponse:
    texts = _texts(workspaces, characters, character)
    await asyncio.to_thread(texts.reset, find_prompt(name))
    return EditablePromptResponse.of(texts, find_prompt(name))


# The page


@pages.get("")
async def models_page(setup: ModelSetupDep, request: Request) -> Response:
    context = await asyncio.to_thread(page_context, setup)
    return page_response(request, "settings/models.html", first_run="welcome" in request.query_params, **context)


@pages.get("/current")
async def current(setup: ModelSetupDep) -> Response:
    return fragment_response("settings/models_current.html", **await asyncio.to_thread(page_context, setup))


def page_context(setup: ModelSetup) -> dict[str, Any]:
    """What the template of the models needs."""
    return {
        "overview": setup.overview(),
        "offers": setup.offers(),
        "known_providers": [(name, PRESETS[name]) for name in _KNOWN] + [(_ANY, PRESETS[_ANY])],
        "protection": setup.key_protection,
        "memory": setup.memory_settings,
        "models_folder": str(setup.downloads.models.folder),
    }
