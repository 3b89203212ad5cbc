"""Every parser of what comes from outside, with valid examples of its input.

`bench.fuzz_inbound` and the property tests feed them with changed examples. A parser may refuse an input with an error
of ours, or record and skip it; anything else that it raises is a defect.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult
from pydantic import BaseModel, ValidationError

from bench.lib.hostile_inputs import card_document, png_card
from bench.lib.inbound_files import DiscordReceiver, ProviderReceiver, file_parsers
from bench.lib.inbound_receivers import BOT as TELEGRAM_BOT
from bench.lib.inbound_receivers import BrokerReceiver, TelegramReceiver, TwitchReceiver
from coterie.base.errors import CoterieError
from coterie.base.untrusted import parse_json
from coterie.characters.cards import Card, TavernChat, import_card
from coterie.characters.cards.import_export import write_charx
from coterie.characters.cards.lore_scan import LoreContext, find_lore
from coterie.characters.cards.lorebook import Lorebook
from coterie.characters.cards.parsing import read_object
from coterie.eventstore.sqlite.database import KeyStore
from coterie.llm.discovery import _with_ollama_facts
from coterie.llm.embedded.gguf import load_tokenizer, memory_needed_mb, read_metadata, trained_context
from coterie.llm.model_info import ModelInfo, read_model_list
from coterie.llm.structured import _InvalidAnswer, parse_answer
from coterie.memory import embed_checked
from coterie.memory.index.chosen_embedders import _vectors
from coterie.memory.jsonl import parse_import
from coterie.messaging.agents import AgentRegistry
from coterie.messaging.inbox import MessageReceived
from coterie.messaging.quarantine import Quarantine
from coterie.modes.crowd.cluster.broker import RunningSession
from coterie.modes.crowd.personas import Persona
from coterie.modes.crowd.protocol import EXAMPLES, MESSAGE_TYPES, SenderPost, WireMessage, parse_post_answer
from coterie.modes.crowd.session.stream_context import StreamScript
from coterie.modes.crowd.settings import SHIPPED_CONFIGS, RoomConfig, _parse
from coterie.modes.desk.agents.tools import _result_text
from coterie.modes.draft.edit_formats import parser_for
from coterie.modes.draft.live_document import apply_changes
from coterie.modes.remote.protocol import FileStep, decode_data, parse_agent_frame, parse_server_frame
from coterie.modes.story.archive import read_character_archive, reassign_memories
from coterie.modes.story.turn_parser import parse_segments
from coterie.surfaces.matrix.crypto.devices import _parse_device
from coterie.surfaces.matrix.crypto.machine import OlmMachine
from coterie.surfaces.matrix.homeserver import Homeserver
from coterie.surfaces.matrix.rooms import MatrixRooms
from coterie.surfaces.matrix.schemas import ResponseReader, Sync, read_event, read_invite
from coterie.surfaces.openai_api.routes import ChatCompletionRequest
from coterie.surfaces.telegram.markup import to_html
from coterie.surfaces.web.draft.routes import _last_event_id
from coterie.surfaces.web.draft.schemas import EditRequest
from coterie.surfaces.web.shared.live_updates import _positions
from coterie.surfaces.webhook.routes import WebhookRequest, _incoming
from coterie.surfaces.webhook.surface import is_allowed_callback

BOT, EVE, ROOM = "@bot:here", "@eve:there", "!room:here"


@dataclass(frozen=True)
class InboundParser:
    name: str
    examples: tuple[bytes, ...]
    """Valid inputs; those that are JSON are also changed as JSON."""
    parse: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (CoterieError,)
    """The errors with which it may refuse an input."""
    weight: int = 100
    """The share of the inputs that it gets; slow parsers get few."""

    def run(self, data: bytes) -> bool:
        """Whether the input was accepted. Raises whatever is not an error of ours."""
        try:
            self.parse(data)
        except self.refusals:
            return False
        return True


class _Refused(CoterieError):
    """The boundary refuses it with a status of 400 or 422, or tries again later."""

    def __init__(self) -> None:
        super().__init__("It is not valid.", "Correct it.")


def _json_value(data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError:
        raise _Refused from None


def _json(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


def _event(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    event = {"type": kind, "sender": EVE, "event_id": "$1", "origin_server_ts": 1_700_000_000_000}
    return {**event, "content": content, **more}


_REPLY = {"m.in_reply_to": {"event_id": "$0"}, "rel_type": "m.thread", "event_id": "$2", "is_falling_back": False}
_MESSAGE = _event("m.room.message", {"msgtype": "m.text", "body": "> hi\n\nhello", "m.relates_to": _REPLY})
_IMAGE = _event(
    "m.room.message",
    {"msgtype": "m.image", "body": "a", "filename": "b.png", "url": "mxc://a/b", "info": {"mimetype": "image/png"}},
)
_MEGOLM = {"algorithm": "m.megolm.v1.aes-sha2", "session_id": "s", "ciphertext": "AwgAEiD0", "sender_key": "k"}
_SYNC = {
    "next_batch": "s1",
    "rooms": {
        "join": {
            ROOM: {
                "timeline": {
                    "events": [_MESSAGE, _IMAGE, _event("m.room.encrypted", _MEGOLM)],
                    "limited": True,
                    "prev_batch": "p",
                },
                "state": {"events": [_event("m.room.member", {"membership": "join"}, state_key=BOT)]},
            }
        },
        "invite": {"!i": {"invite_state": {"events": [_event("m.room.member", {}, state_key=BOT)]}}},
    },
    "to_device": {"events": [_event("m.room.encrypted", {"algorithm": "x"})]},
    "device_lists": {"changed": [EVE], "left": []},
    "device_one_time_keys_count": {"signed_curve25519": 50},
    "device_unused_fallback_key_types": ["signed_curve25519"],
}


def _matrix_sync(data: bytes) -> None:
    quarantine = Quarantine("matrix")
    sync = ResponseReader(quarantine).sync(_json_value(data))
    for room, info in sync.joined.items():
        for event in info.timeline:
            with quarantine.reading(event, room=room):
                read_event(room, event, BOT)
    for room, state in sync.invites.items():
        read_invite(room, state, BOT)
    for skipped in quarantine.skipped:
        skipped.model_dump_json()


def _matrix_event(data: bytes) -> None:
    event = _json_value(data)
    if not isinstance(event, dict):
        return
    try:
        incoming = read_event(ROOM, event, BOT)
    except ValidationError:
        raise _Refused from None  # it is recorded and skipped
    if incoming is not None:
        MessageReceived(incoming=incoming).model_dump_json()


class _Unconnected(Homeserver):
    """Every request succeeds without effect."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.devices: dict[str, Any] = {}

    async def call(self, method: str, path: str, *_: Any, **__: Any) -> Any:
        return {"device_keys": self.devices} if path.endswith("/keys/query") else {}


class _MatrixCrypto:
    """A device that receives to-device messages and encrypted events from another."""

    def __init__(self, folder: Path) -> None:
        self._server = _Unconnected()
        self._bot = OlmMachine(KeyStore(folder / "bot.db"), self._server, BOT, "BOT")
        eve = OlmMachine(KeyStore(folder / "eve.db"), self._server, EVE, "PHONE")
        self._server.devices = {EVE: {"PHONE": eve.own.keys()}}
        eve.close()
        self._rooms = MatrixRooms(self._server, BOT)
        self._loop = asyncio.new_event_loop()
        olm = {"algorithm": "m.olm.v1.curve25519-aes-sha2", "sender_key": eve.own.curve25519}
        body = {"type": 0, "body": base64.b64encode(bytes(range(100))).decode()}
        request = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": ROOM, "session_id": "s"}
        self.to_device = _json(
            _event("m.room.encrypted", {**olm, "ciphertext": {self._bot.own.curve25519: body}}),
            _event("m.room_key_request", {"action": "request", "requesting_device_id": "PHONE", "body": request}),
        )
        self.device_keys = _json(eve.own.keys())
        self.state = _json(
            [
                {**_event("m.room.create", {}, state_key=""), "sender": BOT},
                {**_event("org.coterie.chat", {"account": EVE, "number": 1}, state_key=""), "sender": BOT},
                {**_event("m.room.name", {"name": "A"}, state_key=""), "sender": BOT},
            ]
        )

    def close(self) -> None:
        self._bot.close()
        self._loop.run_until_complete(self._server.close())
        self._loop.close()

    def receive_to_device(self, data: bytes) -> None:
        quarantine = Quarantine("matrix")
        sync = Sync(
            "s1",
            to_device=ResponseReader(quarantine)
            .sync({"next_batch": "s", "to_device": {"events": [_json_value(data)]}})
            .to_device,
            one_time_keys=50,
        )
        self._loop.run_until_complete(self._bot.receive_sync(sync, quarantine, first=False))
        _refuse_faults(quarantine)

    def decrypt(self, data: bytes) -> None:
        quarantine = Quarantine("matrix")
        joined = {"join": {ROOM: {"timeline": {"events": [_json_value(data)]}}}}
        sync = ResponseReader(quarantine).sync({"next_batch": "s", "rooms": joined})
        for event in sync.joined[ROOM].timeline:
            self._bot.observe_state(ROOM, [event])
            self._bot.decrypt(ROOM, event)

    def read_state(self, data: bytes) -> None:
        value = _json_value(data)
        self._rooms._read(ROOM, value if isinstance(value, list) else [value])


def _refuse_faults(quarantine: Quarantine) -> None:
    """Skipping is for malformed events: an error of a program in the reason is a defect too."""
    for skipped in quarantine.skipped:
        if skipped.reason.startswith(("KeyError", "TypeError", "AttributeError", "IndexError", "Unicode")):
            raise AssertionError(skipped.reason)


def _webhook(data: bytes) -> None:
    try:
        request = WebhookRequest.model_validate(_json_value(data))
    except ValidationError:
        raise _Refused from None
    MessageReceived(incoming=_incoming(request)).model_dump_json()
    is_allowed_callback(request.callback or "", ("https://here/cb",))


def _agent_frame(data: bytes) -> None:
    frame = parse_agent_frame(data)
    frame.to_json()
    if isinstance(frame, FileStep):
        decode_data(frame.data)


def _wire_message(kind: type[WireMessage]) -> Callable[[bytes], object]:
    return lambda data: kind.from_json(data).to_json()


def _chat(data: bytes) -> None:
    chat = TavernChat.read(data)
    for turn in chat.turns:
        turn.document()


def _card(file_name: str) -> Callable[[bytes], object]:
    def parse(data: bytes) -> None:
        card = import_card(data, file_name).card
        _properties(card)
        _properties(card.data)

    return parse


def _properties(value: object) -> None:
    """Compute everything that is derived from it."""
    for name in dir(type(value)):
        if not name.startswith(("_", "model_")) and isinstance(
            getattr(type(value), name, None), property | cached_property
        ):
            getattr(value, name)


def _lorebook(data: bytes) -> None:
    lorebook = Lorebook.read(read_object(data, "The lorebook"))
    _properties(lorebook)
    find_lore(lorebook, LoreContext(["I like tea.", "Me too."], replies=3), len)


def _in_file(file: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> object:
        file.write_bytes(data)
        return read(file)

    return parse


class _Shape(BaseModel):
    name: str
    count: int = 0
    tags: list[str] = []


def _edits(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for change_format in ("tags", "search_replace", "json"):
        parser = parser_for(change_format)
        parser.feed(text[: len(text) // 2])
        parser.feed(text[len(text) // 2 :])
        parser.end()


_TYPED = {"client": "a", "changes": [4, [4, "candle"], 10]}


def _typed_updates(data: bytes) -> None:
    text = "The lamp \U0001f56f burns."
    for update in EditRequest.model_validate_json(data).updates:
        text = apply_changes(text, update.changes)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _resume_positions(data: bytes) -> None:
    text = data.decode("latin-1")
    _last_event_id(text)
    _positions(text.split(","))


def _model_lists(data: bytes) -> None:
    body = _json_value(data)
    for info in (
        *read_model_list(body),
        _with_ollama_facts(ModelInfo(name="m"), body, None) if isinstance(body, dict) else None,
    ):
        if info is not None:
            ModelInfo.model_validate_json(info.model_dump_json())


class _VectorsOf:
    name = "e"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def embed(self, texts: Sequence[str]) -> Any:
        return _vectors(self._data, len(texts), self.name)


def _gguf_file(file: Path) -> None:
    load_tokenizer.cache_clear()
    read_metadata(file)
    memory_needed_mb(file, trained_context(file), 1)
    load_tokenizer(file)


def _gguf() -> bytes:
    """The head of a model file: the metadata, with the vocabulary in it."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def entry(name: str, kind: int, value: bytes) -> bytes:
        return text(name) + struct.pack("<I", kind) + value

    entries = [
        entry("general.architecture", 8, text("llama")),
        *(entry(f"llama.{name}", 4, struct.pack("<I", 64)) for name in ("context_length", "block_count")),
        entry("llama.attention.head_count", 4, struct.pack("<I", 8)),
        entry("tokenizer.ggml.model", 8, text("gpt2")),
        entry("tokenizer.ggml.pre", 8, text("smollm")),
        entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("<s>")),
        entry("tokenizer.ggml.token_type", 9, struct.pack("<IQii", 5, 2, 1, 3)),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


_LORE = {"keys": ["tea"], "content": "@@depth 3\nTea is hot.", "enabled": True, "insertion_order": 1, "extensions": {}}
_CARD = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        **dict.fromkeys(("name", "description", "personality", "scenario", "first_mes", "mes_example"), "x"),
        "alternate_greetings": ["hi"],
        "tags": ["a"],
        "assets": [{"type": "icon", "uri": "embeded://a.png", "name": "main", "ext": "png"}],
        "character_book": {"entries": [_LORE], "extensions": {}},
        "extensions": {"depth_prompt": {"prompt": "x", "depth": 4}},
        "creation_date": 1_700_000_000,
    },
}
_TAVERN = (
    {"user_name": "You", "character_name": "Mara", "create_date": "2023-7-8 @15h 14m 20s 123ms", "chat_metadata": {}},
    {"name": "Mara", "is_user": False, "mes": "Hello", "send_date": "July 8, 2023 3:14pm", "swipes": ["Hello", "Hi"]},
    {"name": "You", "is_user": True, "mes": "Hi", "send_date": 1_700_000_000_000, "swipe_id": 0},
)
_MEMORY = {
    "id": "m1", "text": "She likes tea.", "owner": "c", "room": "room:a", "type": "observation",
    "witnesses": ["you"], "about": ["tea"], "sources": [], "happened": "2024-01-01T10:00:00+00:00",
    "significance": 2, "confidence": 0.9, "pinned": False, "disclosure": "people", "superseded_by": "m2",
    "links": [{"relation": "supports", "target": "m0"}],
}  # fmt: skip
_ARCHIVE = {
    "format": "coterie-character",
    "version": 1,
    "versions": [{"id": "01M7PFY4", "name": "Mara", "persona": "A sailor."}],
    "card": {"document": card_document(), "files": {}},
    "memories": [_MEMORY],
    "edges": [],
}
_AGENTS = b"""characters:
  Mara:
    backend: remote
    base_url: ws://127.0.0.1:9000
    token: secret-token
  Finn: {backend: stand-in, says: [Hello, "You said {text}"], latency_s: 0.1}
"""
_SCRIPT = b"""title = "A stream"
[[line]]
at = 0.0
say = "Hello chat"
[[line]]
at = 5.5
say = "Look at that"
event = "hype"
"""
_FRAMES = (
    {"type": "hello", "version": 1, "name": "agent", "epoch": "e"},
    {"type": "text", "message": "m", "number": 1, "text": "Hello"},
    {"type": "tool_call", "message": "m", "number": 2, "name": "search", "text": "tea"},
    {"type": "file", "message": "m", "number": 3, "name": "a.png", "data": "AAAA", "last": True},
    {"type": "done", "message": "m", "number": 4},
    {"type": "error", "message": "m", "number": 4, "text": "no"},
    {"type": "beat", "messages": ["m"]},
    {"type": "task_done", "id": "p", "chat": "c", "text": "Done."},
)
_SERVER_FRAMES = (
    {"type": "message", "id": "m", "chat": "c", "person": {"id": "p", "name": "Ana"}, "text": "hi", "after": 0},
    {"type": "file_piece", "message": "m", "file": 0, "data": "AAAA", "last": True},
    {"type": "stop", "message": "m"},
    {"type": "settled", "message": "m"},
)
_COMPLETION = {
    "model": "mara",
    "messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "user": "x",
}


_TELEGRAM_USER = {"id": 7, "is_bot": False, "first_name": "Ana"}
_TELEGRAM_MESSAGE = {
    "message_id": 5,
    "date": 1_700_000_000,
    "chat": {"id": -9, "type": "supergroup", "title": "Square"},
    "from": _TELEGRAM_USER,
    "message_thread_id": 3,
    "is_topic_message": True,
    "text": "@coterie_bot hello",
    "entities": [{"type": "mention", "offset": 0, "length": 12}],
    "reply_to_message": {"message_id": 4, "date": 1, "chat": {"id": -9, "type": "group"}, "from": TELEGRAM_BOT},
}
_TELEGRAM_FILE = {
    **_TELEGRAM_MESSAGE,
    "caption": "look",
    "photo": [{"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1, "file_size": 10}],
    "document": {"file_id": "f", "file_unique_id": "u", "file_name": "a.pdf", "mime_type": "application/pdf"},
}
_TELEGRAM_UPDATES = (
    {"update_id": 1, "message": _TELEGRAM_MESSAGE},
    {"update_id": 1, "message": _TELEGRAM_FILE},
    {"update_id": 1, "message": {**_TELEGRAM_MESSAGE, "text": "/start 1234", "new_chat_members": [_TELEGRAM_USER]}},
    {
        "update_id": 1,
        "callback_query": {
            "id": "q",
            "from": _TELEGRAM_USER,
            "chat_instance": "1",
            "data": "confirm:7",
            "message": _TELEGRAM_MESSAGE,
        },
    },
    {
        "update_id": 1,
        "my_chat_member": {
            "chat": {"id": -9, "type": "group"},
            "from": _TELEGRAM_USER,
            "date": 1,
            "old_chat_member": {"user": TELEGRAM_BOT, "status": "left"},
            "new_chat_member": {"user": TELEGRAM_BOT, "status": "member"},
        },
    },
)
_IRC_TAGS = (
    b"@badges=moderator/1,vip/1;color=#FF00aa;display-name=Ana;id=b34ccfc7-4977;reply-parent-msg-id=a;tmi-sent-ts=1"
)
_IRC = (
    _IRC_TAGS + b" :ana!ana@ana.tmi.twitch.tv PRIVMSG #streamer :hello @salt_lamp\r\n",
    _IRC_TAGS + b" :ana!ana@ana.tmi.twitch.tv PRIVMSG #streamer :\x01ACTION waves\x01\r\n",
    _IRC_TAGS + b";login=ana;msg-id=raid;system-msg=5\\sraiders :tmi.twitch.tv USERNOTICE #streamer :hi\r\n",
    b"@ban-duration=600;tmi-sent-ts=1 :tmi.twitch.tv CLEARCHAT #streamer :ana\r\n",
    b"@login=ana;target-msg-id=b34ccfc7-4977 :tmi.twitch.tv CLEARMSG #streamer :hello\r\n",
    b":tmi.twitch.tv NOTICE * :Login authentication failed\r\nPING :tmi.twitch.tv\r\n",
)
_TICKED = {
    "tick": 1, "at_ms": 1, "upto": 1, "personas": ["aunt_entropy"], "joined": [], "context": 1,
    "spoke": [{
        "persona": "aunt_entropy", "because": "mention", "p": 0.5, "roll": 0.1, "parts": {"base": 0.5}, "seed": 1,
    }],
}  # fmt: skip
_WRITTEN = {"persona": "aunt_entropy", "tick": 1, "at_ms": 1, "outcome": "failed", "why": "no", "seconds": 0.5}
_RECALL = {"persona": "aunt_entropy", "recipient": "ana", "answered_text": "hi", "about": "tea", "topics": ["tea"]}
_PERSONA_POST = {"id": "aunt-1", "room": "a", "author": {"name": "aunt_entropy", "kind": "persona"}, "text": "hi"}
_MODEL_LISTS = (
    {"data": [{"id": "a-8B", "context_length": 8_192, "pricing": {"prompt": "0.1", "completion": 0.2}, "size": 5}]},
    {"models": [{"name": "models/b", "details": {"parameter_size": "8B"}, "capabilities": ["vision", "tools"]}]},
    {"model_info": {"llama.context_length": 8_192}, "parameters": "num_ctx 4096", "capabilities": ["completion"]},
)
_VECTORS = {"data": [{"index": 0, "embedding": [0.5, 0.5]}], "model": "e"}


@contextmanager
def inbound_parsers() -> Iterator[list[InboundParser]]:
    """All parsers. Some work with files and keys, which are removed afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        crypto = stack.enter_context(closing(_MatrixCrypto(folder)))
        telegram = stack.enter_context(closing(TelegramReceiver()))
        twitch = stack.enter_context(closing(TwitchReceiver()))
        broker = stack.enter_context(closing(BrokerReceiver()))
        discord = stack.enter_context(closing(DiscordReceiver()))
        provider = stack.enter_context(closing(ProviderReceiver()))
        yield [
            *_parsers(folder, crypto),
            *_newer_parsers(folder, telegram, twitch, broker),
            InboundParser("discord_message", discord.examples, discord.receive),
            InboundParser("provider_stream", provider.examples, provider.receive, weight=2),
            *(InboundParser(one.name, one.examples, one.parse, weight=one.weight) for one in file_parsers()),
        ]


def _newer_parsers(
    folder: Path, telegram: TelegramReceiver, twitch: TwitchReceiver, broker: BrokerReceiver
) -> list[InboundParser]:
    session = RunningSession(opened=broker.opened)
    return [
        InboundParser("telegram_update", _json(*_TELEGRAM_UPDATES), telegram.receive),
        InboundParser(
            "telegram_markup", (b"# A\n\n1. **b** [c](tg://x)\n   > - `d`",), lambda data: to_html(_text(data))
        ),
        InboundParser("twitch_line", _IRC, twitch.receive, (CoterieError, ValidationError)),
        InboundParser("crowd_ticked", _json(_TICKED), broker.receive_record("crowd_ticked"), weight=50),
        InboundParser("crowd_written", _json(_WRITTEN), broker.receive_record("crowd_written"), weight=50),
        InboundParser("crowd_recall", _json(_RECALL), broker.receive_recall, weight=50),
        InboundParser("crowd_post", _json(_PERSONA_POST), broker.receive_post, weight=50),
        InboundParser("crowd_session", (session.to_bytes(),), RunningSession.from_bytes, weight=30),
        InboundParser("model_list", _json(*_MODEL_LISTS), _model_lists),
        InboundParser("embeddings", _json(_VECTORS), lambda data: embed_checked(_VectorsOf(data), ["a"]), weight=50),
        InboundParser("gguf", (_gguf(),), _in_file(folder / "model.gguf", _gguf_file), weight=50),
    ]


def _parsers(folder: Path, crypto: _MatrixCrypto) -> list[InboundParser]:
    wire: dict[type[WireMessage], bytes] = {
        kind: (EXAMPLES / f"{kind.schema_name()}.json").read_bytes() for kind in MESSAGE_TYPES
    }
    document = card_document()
    picture = png_card(document)
    charx = write_charx(Card.read(dict(document)))
    message = json.loads(wire[next(kind for kind in MESSAGE_TYPES if kind.message_type == "chat_message")])
    return [
        InboundParser("matrix_sync", _json(_SYNC), _matrix_sync),
        InboundParser("matrix_event", _json(_MESSAGE, _IMAGE), _matrix_event),
        InboundParser("matrix_state", crypto.state, crypto.read_state, weight=50),
        InboundParser("matrix_to_device", crypto.to_device, crypto.receive_to_device, weight=5),
        InboundParser("matrix_encrypted", _json(_event("m.room.encrypted", _MEGOLM)), crypto.decrypt, weight=5),
        InboundParser("matrix_device", crypto.device_keys, lambda data: _parse_device(EVE, "PHONE", _json_value(data))),
        InboundParser(
            "webhook",
            _json(
                {"text": "hi", "room": "main", "id": "1", "from": "ana", "wait": True, "callback": "https://here/cb/1"}
            ),
            _webhook,
        ),
        InboundParser("agent_frame", _json(*_FRAMES), _agent_frame),
        InboundParser("server_frame", _json(*_SERVER_FRAMES), lambda data: parse_server_frame(data).to_json()),
        *(
            InboundParser(f"nats_{kind.message_type}", (example,), _wire_message(kind))
            for kind, example in wire.items()
        ),
        InboundParser("sender_post", _json({"id": "1", "room": "a", "text": "hi"}), SenderPost.from_json),
        InboundParser(
            "nats_answer", _json({"message": message}, {"rule": "rate", "error": "a", "fix": "b"}), parse_post_answer
        ),
        InboundParser("card_json", _json(_CARD, document), _card("card.json"), weight=30),
        InboundParser("card_png", (picture,), _card("card.png"), weight=15),
        InboundParser("card_charx", (charx,), _card("card.charx"), weight=15),
        InboundParser("lorebook", _json({"entries": [_LORE]}), _lorebook),
        InboundParser("tavern_chat", (b"\n".join(_json(*_TAVERN)),), _chat, weight=50),
        InboundParser(
            "memory_import",
            _json(_MEMORY, {"format": "coterie-memory", "version": 1}),
            lambda data: list(parse_import(reassign_memories(_text(data).split("\n"), "c", 3), owner="c", room="r")),
        ),
        InboundParser("character_archive", _json(_ARCHIVE), _archive, weight=30),
        InboundParser(
            "agents_yaml",
            (_AGENTS,),
            _in_file(folder / "agents.yaml", _read_agents),
            weight=5,
        ),
        InboundParser("crowd_script", (_SCRIPT,), _in_file(folder / "stream.toml", StreamScript.read), weight=10),
        InboundParser(
            "crowd_room",
            ((SHIPPED_CONFIGS / "rooms" / "late-shift.toml").read_bytes(),),
            _in_file(folder / "late-shift.toml", lambda file: _parse(RoomConfig, file)),
            weight=5,
        ),
        InboundParser(
            "crowd_persona",
            ((SHIPPED_CONFIGS / "personas" / "aunt_entropy.toml").read_bytes(),),
            _in_file(folder / "aunt_entropy.toml", lambda file: _parse(Persona, file)),
            weight=5,
        ),
        InboundParser(
            "tool_result",
            _json({"content": [{"type": "text", "text": "Done."}, {"type": "image", "data": "", "mimeType": "a/b"}]}),
            lambda data: _result_text(CallToolResult.model_validate_json(data)),
            (ValidationError,),
        ),
        InboundParser(
            "editor_updates",
            _json({"branch": "main", "epoch": "1", "version": 0, "updates": [_TYPED]}),
            _typed_updates,
            (CoterieError, ValidationError),
        ),
        InboundParser(
            "structured_answer",
            (b'Sure:\n```json\n{"name": "tea", "count": 3, "tags": ["a"]}\n```',),
            lambda data: parse_answer(_Shape, _text(data)),
            (CoterieError, _InvalidAnswer),
        ),
        InboundParser(
            "draft_reply",
            (
                b"Text <change><original>a</original><proposed>b</proposed></change>",
                b"<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE",
                b'{"say": "Done", "changes": [{"original": "a", "proposed": "b", "reason": "c"}]}',
            ),
            _edits,
        ),
        InboundParser("story_reply", (b'*smiles* "Hello" (ooc: hi) **x**',), lambda data: parse_segments(_text(data))),
        InboundParser(
            "completion_request", _json(_COMPLETION), ChatCompletionRequest.model_validate_json, (ValidationError,)
        ),
        InboundParser("resume_position", (b"17", b"chat:17,instance:9"), _resume_positions),
    ]


def _read_agents(file: Path) -> object:
    return AgentRegistry(file)._parse()


def _archive(data: bytes) -> None:
    archive = read_character_archive(data)
    if archive.card is not None:
        _properties(archive.card.card())
    lines = (json.dumps(entry) for entry in archive.memories)
    list(parse_import(reassign_memories(lines, "c", 3), owner="c", room="r"))
