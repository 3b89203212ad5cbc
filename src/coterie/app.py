"""The composition root: joins the settings of all packages, opens the store with all projections, builds the services.

Only the command line imports it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from coterie.base.clock import Clock, SystemClock
from coterie.base.config import (
    resolve_reference,
    without_secrets,
)
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.offload import close_workers
from coterie.base.paths import Paths
from coterie.base.secrets import SecretsStore, default_protection, passphrase_from_env
from coterie.base.supervisor import Supervisor, report_problem, report_recovery, run_once
from coterie.characters import (
    ApiKeys,
    ApiKeysProjection,
    CharacterPictures,
    CharacterPicturesProjection,
    Characters,
    CharactersProjection,
    Lorebooks,
    LorebooksProjection,
    NoSuchCharacter,
    People,
    PeopleProjection,
    Personas,
    PersonasProjection,
    PictureFiles,
    Visits,
    VisitsProjection,
    Workspaces,
    people_folder,
    read_portrait,
)
from coterie.conversation import Feed, TurnsProjection
from coterie.eventstore import (
    Handler,
    NewEvent,
    Payload,
    Projection,
    StepProgress,
    Store,
    Worker,
    seed_from_snapshots,
)
from coterie.llm import (
    Catalogue,
    LocalModels,
    ModelDownloads,
    ModelInfoStore,
    Models,
    UsageProjection,
)
from coterie.memory import (
    Embedder,
    EndpointEmbedder,
    FastEmbedder,
    Memory,
    MemoryProjection,
    MemorySettings,
    text_similarity,
)
from coterie.messaging import (
    AgentRegistry,
    Conversation,
    FileLimits,
    MessageRouter,
    Messenger,
    NoticeSender,
    RoomFiles,
    RoomRef,
    messaging_projections,
)
from coterie.modes.crowd import ChatTokens, CrowdCluster, CrowdMetrics, CrowdService, crowd_projections
from coterie.modes.desk import DeskConversation, DeskService, desk_projections
from coterie.modes.draft import DraftService, copy_adopted, draft_projections, relocate
from coterie.modes.remote import (
    AgentConnections,
    RemoteChatProjection,
    RemoteChatQueries,
    RemoteConversation,
)
from coterie.modes.story import (
    CharacterImporter,
    SillyTavernImporter,
    StoryConversation,
    StoryService,
    serialize_by_chat,
    story_projections,
)
from coterie.ops import (
    BACKUP_JOB,
    Adopted,
    BackupService,
    BackupSources,
    BackupTaker,
    Doctor,
    Health,
    Metrics,
    ModelSetup,
    RequiredPackage,
    RestoredCopy,
    RestoreReport,
    SettingsEditor,
    SnapshotTaker,
    StorageSettings,
    check_database_present,
    check_health,
    finish_restore,
    log_snapshot_warning,
    restore_backup,
)
from coterie.settings import (
    LIVE_SETTINGS,
    Settings,
    check_settings,
    check_settings_change,
    find_secret,
    load_settings,
    write_example_config,
)
from coterie.surfaces.discord import DiscordMessenger
from coterie.surfaces.matrix import MatrixMessenger
from coterie.surfaces.telegram import TelegramMessenger
from coterie.surfaces.twitch import TwitchService
from coterie.surfaces.webhook import attached as webhook_attached

_log = get_logger(__name__)
_EMBED_EVERY_S = 15.0


class Started(Payload, kind="started"):
    """The server was started."""

    coterie: str
    """The version of Coterie."""


def agent_registry(paths: Paths) -> AgentRegistry:
    """The agents of agents.yaml. Their tokens may be references, as in the settings."""

    def resolve(token: str) -> str:
        secrets = SecretsStore(paths.secrets, lambda: passphrase_from_env(os.environ))
        return resolve_reference(token, "agents.yaml", "token", os.environ, partial(find_secret, secrets))

    return AgentRegistry(paths.root / "agents.yaml", resolve)


def all_projections() -> list[Projection]:
    """The projections of all packages."""
    return [
        CharactersProjection(),
        PeopleProjection(),
        ApiKeysProjection(),
        VisitsProjection(),
        LorebooksProjection(),
        PersonasProjection(),
        CharacterPicturesProjection(),
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
    paths: Paths,
    *,
    clock: Clock | None = None,
    progress: Callable[[int, int], None] | None = None,
    new: bool = False,
) -> Iterator[Store]:
    """Open the store of a data folder; it is closed at the end of the context.

    `new` creates an empty database also where the folder has the remains of a lost one.
    """
    paths.prepare()
    finish_restore(paths)
    if not new:
        check_database_present(paths)
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


def backup_taker(paths: Paths, settings: StorageSettings, clock: Clock) -> BackupTaker:
    """Takes backups with what all packages contribute to them."""

    def adopted(database: Path, target: Path) -> list[Adopted]:
        return [
            Adopted(workspace=one.workspace, folder=one.folder, heads=one.heads, included=one.copied)
            for one in copy_adopted(database, paths.root, target)
        ]

    return BackupTaker(paths, settings, clock, BackupSources(partial(without_secrets, Settings), adopted))


def restore_instance(
    paths: Paths,
    backup: Path,
    now: datetime,
    *,
    confirm: Callable[[], object] = lambda: None,
    progress: StepProgress = lambda _what, _done, _total: None,
) -> RestoreReport:
    """Restore a backup. Workspaces that it brings from another data folder get places in this one."""

    @contextmanager
    def open_copy(database: Path) -> Iterator[Store]:
        store = Store.open(database, projections=all_projections())
        try:
            yield store
        finally:
            store.close()

    def relocate_workspaces(copy: RestoredCopy) -> list[str]:
        relocation = relocate(
            copy.database,
            home=paths.root,
            old_home=copy.home,
            in_place=copy.in_place,
            drafts=copy.drafts,
            copies=copy.adopted_copies,
            open_store=open_copy,
        )
        return [
            f"The documents of the workspace {workspace} are not in the backup. They were in {folder}: copy them and"
            f" run: coterie draft move {workspace} FOLDER"
            for workspace, folder in relocation.missing.items()
        ]

    return restore_backup(
        paths, backup, now, all_projections(), relocate=relocate_workspaces, confirm=confirm, progress=progress
    )


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
        self._backups = backup_taker(paths, settings.storage, self._clock)
        self.models = models or Models(
            settings.models,
            clock=self._clock,
            store=store,
            info=ModelInfoStore(paths.models / "known.json"),
            folder=paths.models,
            similarity=text_similarity,
        )
        self.characters = Characters(store)
        self.personas = Personas(store)
        self.pictures = PictureFiles(paths.root / "shared" / "pictures")
        self.lorebooks = Lorebooks(store, self.characters)
        self.memory = Memory(store, clock=self._clock)
        self._embedder_in_use = MemorySettings()
        self.agents = agent_registry(paths)
        self.workspaces = Workspaces(
            paths.root / "workspaces", paths.root / "shared", folder_name=self._workspace_folder
        )
        self.character_pictures = CharacterPictures(store, self.pictures, self.workspaces)
        self.story = StoryService(
            store,
            self.characters,
            self.memory,
            self.models,
            settings.story,
            self._clock,
            before_rewind=self._snapshots.before_rewind,
            workspaces=self.workspaces,
            pictures=self.pictures,
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
            self.workspaces,
        )
        cluster = None
        if settings.crowd.bus:
            tokens = ChatTokens.from_folder(paths.root, self._clock)
            cluster = CrowdCluster(
                settings.crowd.bus, tokens, database=paths.database, run_personas=settings.crowd.run_personas
            )
        self.crowd = CrowdService(
            store,
            self.memory,
            self.models,
            self._clock,
            paths.root / "configs",
            settings.crowd,
            self.supervisor,
            cluster,
        )
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
            settings,
            paths.config,
            lambda: load_settings(paths),
            lambda: write_example_config(paths),
            LIVE_SETTINGS,
            check=check_settings,
            check_change=check_settings_change,
        )
        self.model_setup = ModelSetup(
            self.models,
            self.settings_editor,
            SecretsStore(paths.secrets, lambda: passphrase_from_env(os.environ), default_protection(os.environ)),
            ModelDownloads(LocalModels(paths.models)),
            lambda: self.settings.memory,
            self._build_embedder,
        )
        self.sillytavern = SillyTavernImporter(
            store,
            self.story,
            self.memory,
            self.character_importer,
            self.model_setup,
            self.personas,
            self.pictures,
            self.lorebooks,
            paths.root / "import",
        )
        self.people = People(store, self._clock)
        self.api_keys = ApiKeys(store)
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
        self._room_files: dict[Path, RoomFiles] = {}
        self.remote_conversation = RemoteConversation(
            store, self.characters, self.remote, settings.agents, self.room_files
        )
        all_conversations: list[Conversation] = [
            StoryConversation(store, self.story, self.characters, self.feed),
            DeskConversation(store, self.desk, self.characters),
            self.remote_conversation,
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
        self.notices = NoticeSender(
            store, self.message_router, settings.surfaces, {**self.draft.notices, **self.crowd.notices}
        )
        self.telegram = TelegramMessenger(
            self.message_router, settings.telegram, self.room_files, self._save_settings, self.supervisor
        )
        self.discord = DiscordMessenger(
            self.message_router, settings.discord, self.room_files, self._save_settings, self.supervisor
        )
        self.matrix = MatrixMessenger(
            self.message_router,
            store,
            settings.matrix,
            paths.root / "matrix",
            self.room_files,
            lambda character: read_portrait(self.workspaces.folder(character)),
            self._save_settings,
            self.supervisor,
        )
        messengers: list[Messenger] = [self.telegram, self.discord, self.matrix]
        self.messengers: dict[str, Messenger] = {messenger.name: messenger for messenger in messengers}

    async def _save_settings(self, section: str, values: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Write settings of a messenger; secrets are stored encrypted, and the settings refer to them."""
        changes: dict[tuple[str, ...], Any] = {(section, name): value for name, value in values.items()}

        def save() -> None:
            store = SecretsStore(
                self.paths.secrets, lambda: passphrase_from_env(os.environ), default_protection(os.environ)
            )
            for name, value in secrets.items():
                store.set(f"{section}_{name}", value)
            stored = {name: f"secret:{section}_{name}" for name in secrets}
            changes.update(((section, name), reference) for name, reference in stored.items())
            self.settings_editor.write(changes, references=stored.values())

        await asyncio.to_thread(save)

    @property
    def code_minutes(self) -> int:
        return self.settings.surfaces.code_minutes

    def room_files(self, character: str) -> RoomFiles:
        """The files that people and a character exchange."""
        folder, desk = self.workspaces.folder(character), self.settings.desk
        if folder not in self._room_files:
            limits = FileLimits(
                max_bytes=self.settings.surfaces.largest_file_mb * 1_000_000,
                total_bytes=desk.workspace_mb << 20,
                total_files=desk.workspace_files,
            )
            self._room_files[folder] = RoomFiles(folder, limits, self._people_folder)
        return self._room_files[folder]

    def _people_folder(self, room: RoomRef, sender: str) -> str:
        """The folder of the people in a room, which its workers use, too."""
        rooms = self.message_router.chats.rooms
        # The remote mode names a room by its chat.
        held_in = rooms.room_of(room.id) if room.surface == self.remote_conversation.mode else room
        binding = rooms.find(held_in) if held_in is not None else None
        if held_in is None or binding is None:
            # Nobody but the sender has a part in a room without a chat.
            return people_folder([sender or f"{room.surface}\n{room.id}"])
        people = {binding.person, *rooms.guests(held_in), *([sender] if sender else [])}
        if self.desk.queries.is_desk(binding.context):
            people |= self.desk.people_in(binding.context)
        return people_folder(people)

    def _workspace_folder(self, character: str) -> str:
        try:
            return self.agents.workspace_of(self.characters.get(character))
        except NoSuchCharacter:
            return ""

    def handlers(self) -> dict[str, Handler]:
        """Job kind → its handler, for the jobs that the worker runs."""
        return {
            BACKUP_JOB: self._backups.run_job,
            **self.story.handlers(),
            **self.draft.handlers(),
            **self.sillytavern.handlers(),
        }

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
            "twitch": TwitchService(self.crowd, self.store.bus, self.settings.twitch, self.supervisor).run,
            **{f"desk jobs: {name}": desk_worker.run for name, desk_worker in self.desk.job_workers().items()},
            "stalled desk processes": self.desk.stalled_processes.run,
            "agents": self.remote.run,
            "desk maintenance": self.desk.maintenance.run,
            "notices": self.notices.run,
            "embedding of memories": self._embed_memories,
        }
        tasks = [
            *(self.supervisor.start(name, partial(_run_until, stop, run)) for name, run in runs.items()),
            *self.desk.mcp_servers.start(self.supervisor, stop),
        ]
        await self.desk.sandbox.status()  # logs a problem now instead of at the first use
        self.models.warm_up()
        refresh = run_once("what providers tell about their models", self.model_setup.refresh())
        _log.info("started", version=self._version, database=str(self.paths.database))
        try:
            async with AsyncExitStack() as surfaces:
                await surfaces.enter_async_context(webhook_attached(self.message_router, self.settings.webhook))
                for messenger in self.messengers.values():
                    await surfaces.enter_async_context(messenger.running())
                yield
        finally:
            _log.info("stopping")
            refresh.cancel()
            await self.model_setup.downloads.close()
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

    async def _embed_memories(self, stop: asyncio.Event) -> None:
        """Use the embedder of the settings, and embed new memories from time to time."""
        while not stop.is_set():
            chosen = self.settings.memory
            if chosen != self._embedder_in_use:
                try:
                    embedder = await asyncio.to_thread(self._build_embedder, chosen)
                    await asyncio.to_thread(self.memory.use_embedder, embedder)
                    report_recovery()
                except CoterieError as error:
                    report_problem(error.what, error.fix)
                self._embedder_in_use = chosen.model_copy()
            self.memory.embedding_worker.start()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _EMBED_EVERY_S)
        await asyncio.to_thread(self.memory.embedding_worker.stop)

    def _build_embedder(self, chosen: MemorySettings) -> Embedder | None:
        if chosen.embedder == "fastembed":
            return FastEmbedder(chosen.embedder_model)
        if chosen.embedder == "offline":
            return None
        spec = self.models.catalogue.spec(chosen.embedder_provider)
        return EndpointEmbedder(
            spec.base_url, chosen.embedder_model, spec.api_key.get_secret_value() if spec.api_key else ""
        )

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
        raise RuntimeError("It ended unexpectedly.")


def build_doctor(paths: Paths, clock: Clock | None = None) -> Doctor:
    """The doctor with the checks of all packages, configured by the settings."""
    from coterie.llm import check_providers
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
            yield CheckResult("Sandbox", "ok", f"commands are confined by bubblewrap. {status.limits}")
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
    if settings.discord.token is not None:
        packages.append(RequiredPackage("discord", "discord", "Discord"))
    return packages
