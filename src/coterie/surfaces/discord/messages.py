"""Turn Discord's messages and interactions into neutral events.

A room is a channel, a thread or a direct chat; its id is Discord's.
"""

from __future__ import annotations

import re
from typing import Any

import discord

from coterie.messaging import (
    COMMAND_NAMES,
    Account,
    Incoming,
    IncomingCallback,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    RoomRef,
    RoomTitleChange,
)

SURFACE = "discord"
_COMMAND = re.compile(r"[!/](\w+)\s*")
_MESSAGES = (discord.MessageType.default, discord.MessageType.reply)
_MEMBERS: dict[discord.MessageType, Any] = {
    discord.MessageType.recipient_add: "joined",
    discord.MessageType.recipient_remove: "left",
}


def room_ref(channel: int) -> RoomRef:
    return RoomRef(surface=SURFACE, id=str(channel))


def account_of(user: discord.abc.User) -> Account:
    return Account(surface=SURFACE, id=str(user.id), name=user.display_name)


def read_message(message: discord.Message, own: discord.ClientUser, *, group: bool) -> list[Incoming]:
    """The events of a message; none for what bots, webhooks and Discord itself wrote."""
    author = message.author
    if author.bot or message.webhook_id is not None:
        return []
    fields: dict[str, Any] = {
        "account": account_of(author),
        "room": room_ref(message.channel.id),
        "key": str(message.id),
        "at": message.created_at,
        "group": group,
        "server": str(message.guild.id) if message.guild is not None else "",
    }
    if (change := _MEMBERS.get(message.type)) is not None:
        people = [user for user in message.mentions if not user.bot]
        return [
            MemberChange(**{**fields, "account": account_of(user), "key": f"{message.id} {user.id}"}, change=change)
            for user in people
        ]
    if message.type is discord.MessageType.channel_name_change:
        return [RoomTitleChange(**fields, title=message.content)] if message.content else []
    if message.type not in _MESSAGES:
        return []
    fields["addressed"] = not group or _is_mentioned(message, own) or _is_own_thread(message, own)
    text = _readable(message, own)
    if not text and not message.attachments:
        return []
    command = _COMMAND.match(text) if fields["addressed"] else None
    if command is not None and command[1].lower() in COMMAND_NAMES:
        return [IncomingCommand(**fields, name=command[1].lower(), arguments=text[command.end() :])]
    reference = message.reference
    reply_to = str(reference.message_id) if reference is not None and reference.message_id is not None else None
    if reference is not None and message.message_snapshots:
        reply_to = None  # what was forwarded is in the text
    return [IncomingMessage(**fields, text=text, reply_to=reply_to)]


def read_command(
    interaction: discord.Interaction[Any], name: str, arguments: str, *, group: bool
) -> IncomingCommand | None:
    if interaction.channel_id is None:
        return None
    return IncomingCommand(**_interaction_fields(interaction, group), name=name, arguments=arguments)


def read_button(interaction: discord.Interaction[Any], *, group: bool) -> IncomingCallback | None:
    data: Any = interaction.data or {}
    custom_id = data.get("custom_id")
    if interaction.channel_id is None or not isinstance(custom_id, str):
        return None
    action, _, payload = custom_id.partition(":")
    return IncomingCallback(**_interaction_fields(interaction, group), action=action, payload=payload)


def _interaction_fields(interaction: discord.Interaction[Any], group: bool) -> dict[str, Any]:
    return {
        "account": account_of(interaction.user),
        "room": room_ref(interaction.channel_id or 0),
        "key": f"interaction {interaction.id}",
        "at": interaction.created_at,
        "group": group,
        "server": str(interaction.guild_id) if interaction.guild_id is not None else "",
    }


def _is_mentioned(message: discord.Message, own: discord.ClientUser) -> bool:
    """By name, by a reply that notifies, or by the role that Discord gives to every bot."""
    role = message.guild.self_role if message.guild is not None else None
    return (
        own.id in message.raw_mentions
        or own in message.mentions
        or (role is not None and role in message.role_mentions)
    )


def _is_own_thread(message: discord.Message, own: discord.ClientUser) -> bool:
    """A thread that we began is a chat with us."""
    return isinstance(message.channel, discord.Thread) and message.channel.owner_id == own.id


def _readable(message: discord.Message, own: discord.ClientUser) -> str:
    """The text without our own mention at its beginning, and with names instead of the ids of others."""
    text = message.content
    for snapshot in message.message_snapshots:
        text = f"{text}\n{snapshot.content}".strip()
    if not text and message.stickers:
        text = f"({message.stickers[0].name})"
    text = re.sub(rf"\A\s*<@[!&]?{own.id}>[\s,:]*", "", text) or text
    names = {str(user.id): user.display_name for user in message.mentions}
    return re.sub(r"<@!?(\d+)>", lambda match: f"@{names.get(match[1], match[1])}", text)
