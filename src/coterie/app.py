"""The composition root: joins the settings of all packages, opens the store with all projections, builds the services.

Only the command line imports it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from coterie.base.clock import Clock, SystemClock
from coterie.base.config import LoadedSettings, Section, example_config, load_config, resolve_reference
from coterie.base.errors import ConfigError, CoterieError, ReadOnly
from coterie.base.logging import LogSettings, get_logger
from coterie.base.offload import close_workers
from coterie.base.paths import Paths, write_atomic
from coterie.base.secrets import SecretsStore, passphrase_from_env
from coterie.base.supervisor import Supervisor
from coterie.characters import (
    Characters,
    CharactersProjection,
    NoSuchCharacter,
    People,
    PeopleProjection,
    Visits,
    VisitsProjection,
    Workspaces,
    read_portrait,
)
from coterie.conversation import Feed, TurnsProjection
from coterie.eventstore import Handler, NewEvent, Payload, Projection, Store, Worker, seed_from_snapshots
from coterie.llm import Models, ModelsSettings, UsageProjection
from coterie.memory import Memory, MemoryProjection
from coterie.messaging import (
    AgentRegistry,
    Conversation,
    FileLimits,
    MessageRouter,
    RoomFiles,
    SurfacesSettings,
    messaging_projections,
)
from coterie.modes.crowd import CrowdMetrics, CrowdService, crowd_projections
from coterie.modes.desk import DeskConversation, DeskService, DeskSettings, desk_projections
from coterie.modes.draft import DraftService, DraftSettings, draft_projections
from coterie.modes.remote import (
    AgentConnections,
    AgentsSettings,
    RemoteChatProjection,
    RemoteChatQueries,
    RemoteConversation,
)
from coterie.modes.story import (
    CharacterImporter,
    StoryConversation,
    StoryService,
    StorySettings,
    serialize_by_chat,
    story_projections,
)
from coterie.ops import (
    BACKUP_JOB,
    BackupService,
    BackupTaker,
    Doctor,
    Health,
    Metrics,
    RequiredPackage,
    SettingsEditor,
    SnapshotTaker,
    StorageSettings,
    check_health,
    log_snapshot_warning,
)
from coterie.surfaces.matrix import MatrixSettings
from coterie.surfaces.openai_api import ApiSettings
from coterie.surfaces.web import ServerSettings
from coterie.surfaces.webhook import WebhookSettings
from coterie.surfaces.webhook import attached as webhook_attached

_log = get_logger(__name__)


class Settings(Section):
    """All settings."""

    server: ServerSettings = ServerSettings()
    models: ModelsSettings = ModelsSettings()
    story: StorySettings = StorySettings()
    draft: DraftSettings = DraftSettings()
    desk: DeskSettings = DeskSettings()
    surfaces: SurfacesSettings = SurfacesSettings()
    agents: AgentsSettings = AgentsSettings()
    webhook: WebhookSettings = WebhookSettings()
    api: ApiSettings = ApiSettings()
    matrix: MatrixSettings = MatrixSettings()
    storage: StorageSettings = StorageSettings()
    log: LogSettings = LogSettings()


LIVE_SETTINGS = (
    "story.",
    *(f"models.{name}" for name in ("provider", "base_url", "api_key", "narrative_model", "classifier_")),
    *(f"models.{name}" for name in ("roles", "tasks", "details", "caps.", "first_token_s", "idle_s", "deadline_s")),
    *("models.rate_limit_cooldown_s", "storage.keep_", "storage.snapshot_every_"),
)
"""Prefixes of settings that are read each time they are needed, so that a change applies without a restart."""


class Started(Payload, kind="started"):
    """The server was started."""

    coterie: str
    """The version of Coterie."""


def load_settings(
    paths: Paths, environ: Mapping[str, str] | None = None, passphrase: Callable[[], str | None] | None = None
) -> LoadedSettings[Settings]:
    """Load the settings. `passphrase` is called only if they refer to the secrets store; by default it is read from
    the environment.
    """
    env = os.environ if environ is None else environ
    secrets = SecretsStore(paths.secrets, passphrase or (lambda: passphrase_from_env(env)))
    return load_config(Settings, file=paths.config, environ=env, secret=partial(_find_secret, secrets))


_TOOL_SERVER = re.compile(r"desk\.tool_servers\.(.+?)\.(?:command|url|env|headers)\b")


def _find_secret(secrets: SecretsStore, name: str, key: str) -> str | None:
    """A tool server gets only the secrets that were granted to it, and other settings only those that were not."""
    server = _TOOL_SERVER.match(key)
    value = secrets.get(name, tool=server[1] if server else None)
    if value is None and (stored := next((info for info in secrets.list() if info.name == name), None)) is not None:
        if server:
            raise ConfigError(
                f"{key} refers to the secret {name}, which was not stored for the tool server {server[1]}.",
                f"Store it for that server: coterie secrets set {name} --tool {server[1]}",
            )
        raise ConfigError(
            f"{key} refers to the secret {name}, which was stored for {', '.join(stored.grants)} only.",
            f"Store it for the settings, without --tool: coterie secrets set {name}",
        )
    return value


def agent_registry(paths: Paths) -> AgentRegistry:
    """The agents of agents.yaml. Their tokens may be references, as in the settings."""

    def resolve(token: str) -> str:
        secrets = SecretsStore(paths.secrets, lambda: passphrase_from_env(os.environ))
        return resolve_reference(token, "agents.yaml", "token", os.environ, partial(_find_secret, secrets))

    return AgentRegistry(paths.root / "agents.yaml", resolve)


def write_example_config(paths: Paths) -> None:
    """Write a configuration file with all defaults commented out, unless there is one."""
    try:
        if not paths.config.exists():
            paths.config.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(paths.config, example_config(Settings).encode())
    except OSError as error:
        raise ReadOnly(
            f"The configuration file {paths.config} cannot be written ({error.strerror}).",
            "Give yourself write access to its folder, or choose another place with COTERIE_CONFIG.",
        ) from error


def all_projections() -> list[Projection]:
    """The projections of all packages."""
    return [
        CharactersProjection(),
        PeopleProjection(),
        VisitsProjection(),
        TurnsProjection(),
        MemoryProjection(),
        UsageProjection(),
        *messaging_projections(),
        *story_projections(),
        *draft_projections(),
        *crowd_projections(),
        RemoteChatProjection(),
        *desk_projections(),
    ]


@contextmanager
def open_store(
    paths: Paths, *, clock: Clock | None = None, progress: Callable[[int, int], None] | None = None
) -> Iterator[Store]:
    """Open the store of a data folder; it is closed at the end of the context."""
    paths.prepare()
    store = Store.open(
        paths.database,
        projections=all_projections(),
        clock=clock,
        progress=progress,
        seed=seed_from_snapshots(paths.periodic_snapshots, log_snapshot_warning),
    )
    try:
        yield store
    finally:
        store.close()


class App:
    """All services on an open store. `running` starts and stops the background work."""

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        store: Store,
        clock: Clock | None = None,
        models: Models | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        from coterie import __version__

        self._version = __version__
        self.paths = paths
        # A copy: live settings are changed in place, and default sections are shared between instances.
        settings = settings.model_copy(deep=True)
        if models is not None:
            settings = settings.model_copy(update={"models": models.settings})
        self.settings = settings
        self.store = store
        self._clock = clock or SystemClock()
        self.supervisor = supervisor or Supervisor(self._clock)
        self._metrics = Metrics(store, self.supervisor)
        self._snapshots = SnapshotTaker(store, paths, settings.storage, self._clock)
        self._backups = BackupTaker(paths, settings.storage, self._clock)
        self.models = models or Models(settings.models, clock=self._clock, store=store)
        self.characters = Characters(store)
        self.memory = Memory(store, clock=self._clock)
        self.agents = agent_registry(paths)
        self.workspaces = Workspaces(
            paths.root / "workspaces", paths.root / "shared", folder_name=self._workspace_folder
        )
        self.story = StoryService(
            store,
            self.characters,
            self.memory,
            self.models,
            settings.story,
            self._clock,
            before_rewind=self._snapshots.before_rewind,
            workspaces=self.workspaces,
        )
        self.draft = DraftService(
            store,
            self.characters,
            self.memory,
            self.models,
            settings.draft,
            self._clock,
            paths.root / "drafts",
            self.supervisor,
        )
        self.crowd = CrowdService(store, self.memory, self.models, self._clock, paths.root / "configs", self.supervisor)
        self._crowd_metrics = CrowdMetrics(self.crowd, store.bus)
        self.desk = DeskService(
            store,
            self.characters,
            self.memory,
            self.models,
            self.workspaces,
            settings.desk,
            self._clock,
            notify=lambda outgoing, token: self.message_router.notify(outgoing, token),
            may_talk=lambda person, character: self.people.may_talk(person, character),
        )
        self.character_importer = CharacterImporter(store, self.characters, self.memory, self.workspaces)
        self.feed = Feed(store, self.story.replies)
        self.backups = BackupService(paths, store, self._backups)
        self.settings_editor = SettingsEditor(
            settings, paths.config, lambda: load_settings(paths), lambda: write_example_config(paths), LIVE_SETTINGS
        )
        self.people = People(store, self._clock)
        self.visits = Visits(store, self._clock)
        self.remote = AgentConnections(
            self.agents,
            self.characters,
            RemoteChatQueries(store),
            settings.agents,
            notify=lambda outgoing, token: self.message_router.notify(outgoing, token),
            room_of=lambda context: self.message_router.chats.rooms.room_of(context),
            supervisor=self.supervisor,
        )
        all_conversations: list[Conversation] = [
            StoryConversation(store, self.story, self.characters, self.feed),
            DeskConversation(store, self.desk, self.characters),
            RemoteConversation(store, self.characters, self.remote, settings.agents, self.room_files),
        ]
        conversations = {conversation.mode: conversation for conversation in all_conversations}
        self.message_router = MessageRouter(
            store,
            self._clock,
            self.characters,
            self.people,
            conversations,
            settings.surfaces,
            self.agents,
            self.supervisor,
        )

    @property
    def code_minutes(self) -> int:
        return self.settings.surfaces.code_minutes

    def room_files(self, character: str) -> RoomFiles:
        """The files that people and a character exchange."""
        limits = FileLimits(max_bytes=self.settings.surfaces.largest_file_mb * 1_000_000)
        return RoomFiles(self.workspaces.folder(character), limits)

    def _workspace_folder(self, character: str) -> str:
        try:
            return self.agents.workspace_of(self.characters.get(character))
        except NoSuchCharacter:
            return ""

    def handlers(self) -> dict[str, Handler]:
        """Job kind → its handler, for the jobs that the worker runs."""
        return {BACKUP_JOB: self._backups.run_job, **self.story.handlers(), **self.draft.handlers()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        await self.store.schedules.put(self._backups.schedule)
        await self.store.append([NewEvent("instance", Started(coterie=self._version))])
        # Drafts first: the replies that are still open after that belong to stories.
        await self.draft.recover()
        await self.story.recover()
        await self.crowd.recover()
        worker = Worker(
            self.store.jobs,
            self.handlers(),
            clock=self._clock,
            bus=self.store.bus,
            schedules=self.store.schedules,
            serialize_by=serialize_by_chat,
        )
        runs = {
            "jobs": worker.run,
            "snapshots": self._snapshots.run,
            "crowd metrics": self._crowd_metrics.run,
            **{f"desk jobs: {name}": desk_worker.run for name, desk_worker in self.desk.job_workers().items()},
            "stalled desk processes": self.desk.stalled_processes.run,
            "agents": self.remote.run,
            "desk maintenance": self.desk.maintenance.run,
        }
        tasks = [
            *(self.supervisor.start(name, partial(_run_until, stop, run)) for name, run in runs.items()),
            *self.desk.mcp_servers.start(self.supervisor, stop),
        ]
        await self.desk.sandbox.status()  # logs a problem now instead of at the first use
        self.models.warm_up()
        _log.info("started", version=self._version, database=str(self.paths.database))
        try:
            async with webhook_attached(self.message_router, self.settings.webhook), self._matrix():
                yield
        finally:
            _log.info("stopping")
            parts = (self.crowd, self.message_router, self.story.replies, self.draft.replies, self.draft)
            for part in parts:
                try:
                    await part.close()
                except Exception:  # the others are closed all the same
                    _log.exception("a part was not closed", part=type(part).__name__)
            stop.set()
            self.desk.processes.interrupt_all()
            await asyncio.gather(*(task.finish() for task in tasks))
            await self.supervisor.stop()
            await self.models.close()
            await asyncio.to_thread(close_workers)

    @asynccontextmanager
    async def _matrix(self) -> AsyncIterator[None]:
        """Run the Matrix surface if a homeserver is configured. One that is unreachable does not stop the start."""
        if not self.settings.matrix.homeserver:
            yield
            return
        from coterie.surfaces.matrix import MatrixService  # loads the encryption library

        matrix = MatrixService(
            self.message_router,
            self.store.bus,
            self.settings.matrix,
            self.paths.root / "matrix",
            self.room_files,
            lambda character: read_portrait(self.workspaces.folder(character)),
            self.supervisor,
        )
        async with matrix.running():
            yield

    def health(self) -> Health:
        return check_health(self.store, self.supervisor)

    def metrics(self) -> bytes:
        return self._metrics.text() + self._crowd_metrics.text()

    def summary(self) -> list[tuple[str, str]]:
        size = self.paths.database.stat().st_size
        return [
            ("Version", self._version),
            ("Events", f"{self.store.reader.last_id():,}"),
            ("Database", f"{size / 1e6:.1f} MB"),
            ("Data folder", str(self.paths.root)),
        ]


async def _run_until(stop: asyncio.Event, run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """A task that ends before the server stops has failed."""
    await run(stop)
    if not stop.is_set():
        raise RuntimeError("It ended by itself.")


def build_doctor(paths: Paths, clock: Clock | None = None) -> Doctor:
    """The doctor with the checks of all packages, configured by the settings."""
    from coterie.llm import Catalogue, check_providers
    from coterie.modes.desk import Sandbox
    from coterie.ops import (
        CheckResult,
        clock_check,
        deliveries_check,
        packages_check,
        port_check,
        providers_check,
        running_server_check,
        skipped_inputs_check,
        tools_check,
    )

    try:
        settings = load_settings(paths).settings
    except CoterieError:  # `coterie doctor` reports invalid settings itself
        settings = Settings()
    clock = clock or SystemClock()

    def sandbox() -> Iterator[CheckResult]:
        status = asyncio.run(Sandbox(settings.desk).status())
        if status.state == "confined":
            yield CheckResult("Sandbox", "ok", "commands are confined by bubblewrap")
        else:
            yield CheckResult("Sandbox", "bad" if status.state == "off" else "note", status.reason, status.fix)

    def agents() -> Iterator[CheckResult]:
        if (problem := agent_registry(paths).problem) is not None:
            yield CheckResult("Agents", "bad", problem.what, problem.fix)

    extra_checks = [
        port_check(paths, settings.server.host, settings.server.port),
        running_server_check(paths, settings.server.host, settings.server.port),
        packages_check(_required_packages(settings)),
        providers_check(lambda: asyncio.run(check_providers(Catalogue(settings.models)))),
        sandbox,
        tools_check(),
        agents,
    ]
    return Doctor(
        paths,
        all_projections(),
        clock,
        extra_checks,
        log_checks=[clock_check(paths, clock), deliveries_check(paths), skipped_inputs_check(paths)],
    )


def _required_packages(settings: Settings) -> list[RequiredPackage]:
    """The optional packages that these settings need."""
    packages = [RequiredPackage("xllamacpp", "", "the embedded model")]
    if settings.desk.tool_servers:
        packages.append(RequiredPackage("mcp", "mcp", "[desk.tool_servers]"))
    return packages
