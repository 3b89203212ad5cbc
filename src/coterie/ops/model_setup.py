"""Choosing models: connect a provider or a local server, test a model, save it, download one, give roles their own.

A key goes into the secrets store together with its address, never into the configuration file. Nothing is saved before
the model has answered.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr

from coterie.base.errors import ConfigError, CoterieError
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.secrets import SecretsStore
from coterie.base.values import is_loopback_url
from coterie.llm import (
    BUNDLED_LICENCE,
    EMBEDDED,
    PRESETS,
    Catalogue,
    ContextOrigin,
    CuratedModel,
    Download,
    DownloadSource,
    EmptyAnswer,
    LocalModel,
    LocalServer,
    ModelDownloads,
    ModelError,
    ModelInfo,
    Models,
    ModelsSettings,
    Prompt,
    ProviderSettings,
    ProviderSpec,
    Role,
    Sampler,
    Target,
    TextDelta,
    ThinkingDelta,
    billions_of_parameters,
    check_base_url,
    curated_models,
    download_source,
    find_local_servers,
    key_address,
    list_models,
    memory_gb,
    model_fits,
    provider_label,
    writes_text,
)
from coterie.memory import Embedder, MemorySettings, embed_checked
from coterie.ops.settings_editor import SettingsEditor

_log = get_logger(__name__)
_ANY = "openai-compatible"
_TEST_PROMPT = Prompt.of("Say hello in one short sentence.", max_tokens=200)
_TEST_S, _LOCAL_TEST_S = 60.0, 180.0
"""How long the test of a model may take; a local server may have to load it first."""
_MUCH_WEAKER = 4.0
_HOSTED_BILLIONS = 100.0
"""Assumed for a hosted model whose name does not tell its size."""
_MAX_PRESET_NAME = 100
_PROVIDER_NAME = re.compile(r"[^a-z0-9]+")

ROLE_LABELS: dict[Role, tuple[str, str]] = {
    Role.NARRATIVE: ("Stories", "Writes what characters say and do."),
    Role.CLASSIFIER: ("Background analysis", "Reads finished turns: scene, relationships, memories. Fast is better."),
    Role.CHANNEL: ("Desk conversation", "Answers you at the desk."),
    Role.BRANCH: ("Desk thinking", "Works on a question while the conversation continues."),
    Role.WORKER: ("Desk tasks", "Works with files and commands."),
    Role.COMPACTOR: ("Summaries", "Shortens long conversations."),
    Role.CORTEX: ("Daily briefing", "Sums up what a character should know now."),
    Role.CROWD: ("Crowd chat", "Writes what the personas of a crowd say."),
    Role.DRAFT: ("Drafts", "Comments on documents and proposes changes."),
    Role.VISION: (
        "Pictures",
        "Describes pictures of messages, and what the stream of a crowd shows. Not used unless you choose one.",
    ),
}


class NoModels(ModelError):
    """A server answers but has no model."""


@dataclass(frozen=True)
class Connection:
    """Where models are: a known provider or any address, with the key that was entered for it."""

    preset: str
    base_url: str = ""
    key: SecretStr | None = None


@dataclass(frozen=True)
class TestResult:
    """The first words of a model, and how long they took."""

    text: str
    first_s: float


@dataclass(frozen=True)
class ModelView:
    """A model as the page shows it."""

    target: str
    name: str
    provider: str
    demo: bool
    local: bool
    """Whether it runs on this machine and costs nothing."""
    context: int | None
    context_origin: ContextOrigin
    price: str
    missing_key: bool
    licence: str = ""
    """The licence of a model whose file is on this machine, as far as it is known."""


@dataclass(frozen=True)
class RoleView:
    role: str
    label: str
    about: str
    model: ModelView
    own: bool
    """Whether it has a model of its own and not the default."""
    weaker: str
    """A sentence if its model is much weaker than the default; else empty."""


@dataclass(frozen=True)
class ProviderView:
    name: str
    label: str
    base_url: str
    has_key: bool
    needs_key: bool
    local: bool


@dataclass(frozen=True)
class Overview:
    default: ModelView
    roles: list[RoleView]
    tasks: dict[str, str]
    providers: list[ProviderView]
    downloaded: list[LocalModel]
    known_models: list[str]
    """Models that can be chosen without entering anything, as `provider/model`."""


@dataclass(frozen=True)
class Offer:
    """A curated model, and whether it fits this machine and is here already."""

    model: CuratedModel
    fits: bool
    downloaded: bool


class ModelSetup:
    def __init__(
        self,
        models: Models,
        editor: SettingsEditor,
        secrets: SecretsStore,
        downloads: ModelDownloads,
        memory_settings: Callable[[], MemorySettings],
        build_embedder: Callable[[MemorySettings], Embedder | None],
        find_servers: Callable[[], Awaitable[list[LocalServer]]] = find_local_servers,
    ) -> None:
        """`build_embedder` makes the embedder that settings describe; None is the built-in one."""
        self._models = models
        self._editor = editor
        self._secrets = secrets
        self.downloads = downloads
        self._build_embedder = build_embedder
        self._memory_settings = memory_settings
        self._find_servers = find_servers

    @property
    def _settings(self) -> ModelsSettings:
        return self._models.settings

    # What there is

    def overview(self) -> Overview:
        catalogue = self._models.catalogue
        default = self._view(self._default_target())
        roles = []
        for role, (label, about) in ROLE_LABELS.items():
            view = self._view(catalogue.chain(role)[0])
            own = role in self._settings.roles or view.target != default.target
            roles.append(RoleView(role.value, label, about, view, own, self._weaker(view, default)))
        downloaded = self.downloads.models.all()
        used = [default.target, *(role.model.target for role in roles), *(str(one.target) for one in downloaded)]
        return Overview(
            default=default,
            roles=roles,
            tasks={name: chain[0] for name, chain in self._settings.tasks.items()},
            providers=[self._provider_view(name) for name in self._settings.providers],
            downloaded=downloaded,
            known_models=list(dict.fromkeys([*used, str(EMBEDDED)])),
        )

    @property
    def key_protection(self) -> str:
        """Where the key that encrypts the secrets is: `keyring`, `file` or `passphrase`; empty if there is none yet."""
        try:
            return self._secrets.protection or ""
        except CoterieError:
            return ""

    @property
    def memory_settings(self) -> MemorySettings:
        """The embedder of the settings."""
        return self._memory_settings()

    @property
    def has_own_model(self) -> bool:
        """Whether a model other than the demo model answers."""
        return self._default_target() != EMBEDDED or self._settings.embedded.model is not None

    async def servers(self) -> list[LocalServer]:
        """The model servers that run on this machine now; what they tell about their models is remembered."""
        servers = await self._find_servers()
        for server in servers:
            self._models.catalogue.info.remember(
                self._provider_name(Connection(server.preset, server.base_url)), server.details
            )
        return servers

    def offers(self) -> list[Offer]:
        total = memory_gb()
        here = {model.name for model in self.downloads.models.all()}
        return [Offer(model, model_fits(model, total), model.name in here) for model in curated_models()]

    # Providers and models

    async def models_of(self, connection: Connection) -> list[ModelInfo]:
        """The models of a provider that can hold a conversation, by its own list."""
        name, spec = self._spec(connection)
        label = provider_label(name, spec.preset, spec.base_url)
        models = [info for info in await list_models(spec, label) if writes_text(info)]
        if not models:
            fix = "Load one there, then try again."
            if spec.preset == "ollama":
                fix = "Get one with: ollama pull llama3.2 – then try again."
            raise NoModels(f"{label} lists no models.", fix)
        return models

    async def choose(self, connection: Connection, model: str, role: Role | None = None) -> TestResult:
        """Test a model and save it with its provider and key: as the default, or for one role."""
        name, spec = self._spec(connection)
        target = Target(name, model.strip())
        if not target.model:
            raise ConfigError("model: No model was chosen.", "Choose one from the list, or type its name.")
        label = provider_label(name, spec.preset, spec.base_url)
        known = await self._known(spec, label)
        result = await self._test(connection, target, label)
        if is_loopback_url(spec.base_url):
            known = await self._known(spec, label) or known  # a loaded model tells its real context
        await asyncio.to_thread(self._save, connection, spec, target, role)
        self._models.catalogue.info.remember(name, known)
        self._models.release_unused()
        return result

    async def use(self, target: str, role: Role | None = None) -> TestResult:
        """Test a model whose provider is already set up, and use it: as the default, or for one role."""
        parsed = Target.parse(target)
        spec = self._models.catalogue.spec(parsed.provider)
        label = provider_label(parsed.provider, spec.preset, spec.base_url)
        if parsed.provider == "embedded":
            self._models.catalogue.weights(parsed)
        result = await _first_words(self._settings.model_copy(update=_only(target)), label, self._models, parsed)
        await asyncio.to_thread(self._editor.write, {_place(role): target})
        self._models.release_unused()
        return result

    async def reset_role(self, role: Role) -> None:
        """Let a role use the default model."""
        await asyncio.to_thread(self._editor.write, {_place(role): None})
        self._models.release_unused()

    async def set_task(self, task: str, target: str | None) -> None:
        """Give a type of task its own model; None removes it."""
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", task):
            raise ConfigError("A type of task has letters, digits, - and _ in its name.", "Choose another name.")
        await asyncio.to_thread(self._editor.write, {("models", "tasks", task): target})

    def samplers(self) -> Mapping[str, Sampler]:
        """The sampler presets of the settings, by name."""
        return dict(self._settings.samplers)

    async def save_sampler(self, name: str, sampler: Sampler) -> None:
        """Add a sampler preset, or replace one."""
        name = " ".join(name.split())[:_MAX_PRESET_NAME]
        if not name:
            raise ConfigError("A preset needs a name.", "Name it.")
        await asyncio.to_thread(
            self._editor.write,
            {("models", "samplers", name): sampler.model_dump(mode="json", include=set(sampler.chosen()))},
        )

    async def remove_sampler(self, name: str) -> None:
        """Remove a sampler preset. Where it is chosen, the next one in order applies."""
        await asyncio.to_thread(self._editor.write, {("models", "samplers", name): None})

    async def use_demo(self) -> None:
        """Let the demo model answer again."""
        await asyncio.to_thread(self._editor.write, {("models", "default"): str(EMBEDDED)})
        self._models.release_unused()

    async def remove_provider(self, name: str) -> None:
        """Remove a provider, its key, and every use of its models."""
        if name not in self._settings.providers:
            raise ConfigError(f"There is no provider called {name[:80]}.", "Reload the page.")
        changes: dict[tuple[str, ...], None] = {("models", "providers", name): None}
        if (self._settings.default or ("",))[0].startswith(f"{name}/"):
            changes["models", "default"] = None
        for table, chains in (("roles", self._settings.roles), ("tasks", self._settings.tasks)):
            for key, chain in chains.items():
                if any(one.startswith(f"{name}/") for one in chain):
                    changes["models", table, str(key)] = None
        await asyncio.to_thread(self._editor.write, changes)
        if any(info.name == _secret_name(name) for info in self._secrets.list()):
            await asyncio.to_thread(self._secrets.remove, _secret_name(name))

    async def choose_embedder(self, chosen: MemorySettings) -> None:
        """Test an embedder and use it; the memories are then embedded again in the background."""
        if chosen.embedder == "provider" and not (chosen.embedder_provider and chosen.embedder_model):
            raise ConfigError("An embedding model needs a provider and a name.", "Choose both.")
        embedder = await asyncio.to_thread(self._build_embedder, chosen)
        if embedder is not None:
            await asyncio.to_thread(embed_checked, embedder, ["Is this text understood?"])
        changes: dict[tuple[str, ...], object] = {
            ("memory", name): value or None for name, value in chosen.model_dump().items()
        }
        await asyncio.to_thread(self._editor.write, changes)

    async def refresh(self) -> None:
        """Ask the providers in use what they tell about their models. Failures are left to the checks of providers."""
        catalogue = self._models.catalogue
        names = {target.provider for role in Role for target in catalogue.chain(role)} - {"embedded"}
        for name in sorted(names):
            try:
                spec = catalogue.spec(name)
                catalogue.info.remember(name, await list_models(spec, name))
            except CoterieError as error:
                _log.info("models_not_listed", provider=name, error=type(error).__name__)

    # Downloads

    def download(self, which: str, sha256: str = "") -> Download:
        """Download a model in the background and use it once it is there."""
        source = self._resumed(which) or download_source(which, sha256)
        self.downloads.start(source, self._use_downloaded)
        return next(one for one in self.downloads.all() if one.source.name == source.name)

    async def remove_downloaded(self, name: str) -> None:
        target = str(self.downloads.models.get(name).target)
        if any(target in map(str, self._models.catalogue.chain(role)) for role in Role):
            raise ConfigError(f"{name} is in use.", "Choose another model first.")
        await asyncio.to_thread(self.downloads.models.remove, name)

    def _resumed(self, name: str) -> DownloadSource | None:
        return next((one.source for one in self.downloads.all() if one.source.name == name and not one.active), None)

    async def _use_downloaded(self, model: LocalModel) -> None:
        await asyncio.to_thread(self._editor.write, {("models", "default"): str(model.target)})
        self._models.release_unused()

    # Parts

    def _default_target(self) -> Target:
        if self._settings.default:
            return Target.parse(self._settings.default[0])
        return self._models.catalogue.chain(Role.NARRATIVE)[0]

    def _provider_name(self, connection: Connection) -> str:
        """The preset's own name at its usual address; otherwise a name made of the host that no other address has."""
        preset = PRESETS[connection.preset]
        url = connection.base_url.rstrip("/")
        if connection.preset != _ANY and url in ("", preset.base_url):
            return connection.preset
        for name, configured in self._settings.providers.items():
            if configured.base_url == url:
                return name
        parts = urlsplit(url)
        host = _PROVIDER_NAME.sub("-", (parts.netloc or "server").lower()).strip("-")
        wanted = host if connection.preset == _ANY else f"{connection.preset}-{host}"
        configured_for = {name: one.base_url or "" for name, one in self._settings.providers.items()}
        taken = {*PRESETS, *configured_for, self._settings.provider}
        names = (wanted, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3)))
        return next(
            name for name in names if name not in taken or key_address(configured_for.get(name, "")) == key_address(url)
        )

    def _spec(self, connection: Connection) -> tuple[str, ProviderSpec]:
        """The provider that a connection describes. A saved key is used only for the address it was given for."""
        if connection.preset not in PRESETS or connection.preset == "embedded":
            raise ConfigError(f"There is no provider called {connection.preset[:80]}.", "Choose one from the list.")
        preset = PRESETS[connection.preset]
        base_url = check_base_url(connection.base_url or preset.base_url)
        name = self._provider_name(Connection(connection.preset, base_url))
        key = connection.key
        if key is not None and not key.get_secret_value().strip():
            key = None
        if key is not None:
            key = SecretStr(key.get_secret_value().strip())
            redact.register(key.get_secret_value())
        elif name in self._settings.providers or name == self._settings.provider:
            saved = self._models.catalogue.spec(name)
            key = saved.api_key if key_address(saved.base_url) == key_address(base_url) else None
        label = provider_label(name, connection.preset, base_url)
        if key is None and preset.needs_key:
            raise ConfigError(f"key: {label} needs a key.", f"Get one at {preset.keys_url} and enter it here.")
        if key is not None and not (key.get_secret_value().isascii() and key.get_secret_value().isprintable()):
            raise ConfigError("key: This is not a key: it has characters that no key has.", "Copy it again.")
        settings = ModelsSettings(
            providers={name: ProviderSettings(preset=connection.preset, base_url=base_url, api_key=key)}
        )
        return name, Catalogue(settings).spec(name)

    async def _known(self, spec: ProviderSpec, label: str) -> Sequence[ModelInfo]:
        """What the provider tells about its models. Some servers have no list, and their models work all the same."""
        try:
            return await list_models(spec, label)
        except CoterieError:
            return ()

    async def _test(self, connection: Connection, target: Target, label: str) -> TestResult:
        _, spec = self._spec(connection)
        provider = ProviderSettings(preset=connection.preset, base_url=spec.base_url, api_key=spec.api_key)
        limit = _LOCAL_TEST_S if is_loopback_url(spec.base_url) else _TEST_S
        settings = self._settings.model_copy(
            update={
                **_only(str(target)),
                "providers": {**self._settings.providers, target.provider: provider},
                **dict.fromkeys(("base_url", "api_key")),
                **dict.fromkeys(("deadline_s", "first_token_s"), limit),
            }
        )
        return await _first_words(settings, label)

    def _save(self, connection: Connection, spec: ProviderSpec, target: Target, role: Role | None) -> None:
        table = ("models", "providers", spec.name)
        usual = spec.base_url == PRESETS[connection.preset].base_url
        changes: dict[tuple[str, ...], object] = {_place(role): str(target)}
        if spec.name not in PRESETS or not usual or spec.api_key is not None:
            changes[*table, "preset"] = connection.preset
            changes[*table, "base_url"] = None if usual else spec.base_url
        keys: tuple[str, ...] = ()
        references: tuple[str, ...] = ()
        entered = connection.key is not None and connection.key.get_secret_value().strip()
        if entered and spec.api_key is not None:
            name = _secret_name(spec.name)
            self._secrets.set(name, spec.api_key.get_secret_value(), address=key_address(spec.base_url))
            changes[*table, "api_key"] = f"secret:{name}"
            references = (f"secret:{name}",)
            keys = (spec.api_key.get_secret_value(),)
        if self._settings.provider == spec.name:
            changes |= {("models", "api_key"): None, ("models", "base_url"): None}
        self._editor.write(changes, entered=keys, references=references)

    def _view(self, target: Target) -> ModelView:
        catalogue = self._models.catalogue
        spec = catalogue.spec(target.provider)
        details = catalogue.details(target)
        demo = target == EMBEDDED and self._settings.embedded.model is None
        price = ""
        if spec.free:
            price = "free"
        elif spec.flat_rate:
            price = "subscription"
        elif (listed := self._models.ledger.prices.per_million(target)) is not None:
            price = f"${listed[0]:g} in, ${listed[1]:g} out per million tokens"
        return ModelView(
            target=str(target),
            name="Demo model" if demo else target.model,
            licence=BUNDLED_LICENCE if demo else self._licence(target),
            provider=provider_label(target.provider, spec.preset, spec.base_url),
            demo=demo,
            local=spec.free,
            context=details.context,
            context_origin=catalogue.context_origin(target),
            price=price or "price unknown",
            missing_key=PRESETS[spec.preset].needs_key and spec.api_key is None,
        )

    def _licence(self, target: Target) -> str:
        if not self._models.catalogue.is_downloaded(target):
            return ""
        return next((model.record.licence for model in self.downloads.models.all() if model.target == target), "")

    def _provider_view(self, name: str) -> ProviderView:
        spec = self._models.catalogue.spec(name)
        return ProviderView(
            name=name,
            label=provider_label(name, spec.preset, spec.base_url),
            base_url=spec.base_url,
            has_key=spec.api_key is not None,
            needs_key=PRESETS[spec.preset].needs_key,
            local=spec.free,
        )

    def _weaker(self, view: ModelView, default: ModelView) -> str:
        if view.target == default.target:
            return ""
        own, usual = self._billions(view), self._billions(default)
        if own * _MUCH_WEAKER > usual:
            return ""
        return f"{view.name} is much weaker than {default.name}, which the other roles use."

    def _billions(self, view: ModelView) -> float:
        info = self._models.catalogue.info.get(view.target)
        size = billions_of_parameters((info.parameters if info else "") or view.target)
        return size if size is not None else 0.135 if view.demo else _HOSTED_BILLIONS


def _secret_name(provider: str) -> str:
    return f"models.{provider}"[:64]


def _place(role: Role | None) -> tuple[str, ...]:
    return ("models", "default") if role is None else ("models", "roles", role.value)


def _only(target: str) -> dict[str, object]:
    """Settings under which one model answers without fallbacks, and neither records nor replays."""
    return {"roles": {Role.NARRATIVE: (target,)}, "record": None, "replay": None}


async def _first_words(
    settings: ModelsSettings, label: str, running: Models | None = None, target: Target | None = None
) -> TestResult:
    """Ask one model to say hello. `ModelError` if it does not."""
    providers = {target.provider: running.provider(target)} if running and target else None
    models = Models(
        settings,
        providers=providers,
        info=running.catalogue.info if running else None,
        folder=running.catalogue.folder if running else None,
    )
    loop = asyncio.get_running_loop()
    began, first, text, thought = loop.time(), None, "", False
    try:
        async with models.stream(Role.NARRATIVE, _TEST_PROMPT) as reply:
            async for chunk in reply:
                first = first if first is not None else loop.time()
                if isinstance(chunk, TextDelta):
                    text += chunk.text
                thought = thought or isinstance(chunk, ThinkingDelta)
    except EmptyAnswer:
        if not thought:  # a model that thinks for long works all the same
            raise
    finally:
        if providers is None:
            await models.close()
    return TestResult(redact(" ".join(text.split())[:200]), round((first or loop.time()) - began, 2))
