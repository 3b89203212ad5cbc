// Commands that can be typed into the message field, such as "/continue" or "/reply Teodor".

import { t } from "../shared/messages.js";

export function slashCommands(actions) {
  return {
    continue: [t("Continue the last reply"), () => actions.run("continue")],
    regenerate: [t("Another reply"), () => actions.run("regenerate")],
    reply: [t("NAME: let somebody reply"), (rest) => actions.reply(rest)],
    suggest: [t("Write for me"), (rest) => actions.suggest(rest)],
    send: [t("TEXT: send without a reply"), (rest) => actions.sendOnly(rest)],
    edit: [t("TEXT: change the last turn"), (rest) => actions.editLast(rest)],
    hide: [t("Hide the last turn from prompts"), () => actions.onLast("hide")],
    delete: [t("Delete the last turn"), () => actions.onLast("delete")],
    bookmark: [t("Bookmark the last turn"), () => actions.onLast("bookmark")],
    bookmarks: [t("List the bookmarks"), () => actions.run("bookmarks")],
    fork: [t("Fork at the last turn"), () => actions.onLast("fork")],
    undo: [t("Undo the last rewind"), () => actions.run("undo")],
    scene: [t("End the scene"), () => actions.run("close-scene")],
    go: [t("PLACE: go to another place"), (rest) => actions.drawer("scene.place", rest)],
    time: [t("2030-01-01T18:00: set the clock"), (rest) => actions.drawer("clock", rest)],
    weather: [t("TEXT: set the weather"), (rest) => actions.drawer("weather", rest)],
    order: [t("automatic, in turn, everyone or manual: who replies"), (rest) => actions.drawer("reply_order", rest)],
    invite: [t("NAME: invite a character"), (rest) => actions.invite(rest)],
    remove: [t("NAME: remove a guest"), (rest) => actions.removeGuest(rest)],
  };
}

// The command in a text, and what follows it; null if the text is an ordinary message.
export function parseCommand(text, commands) {
  const match = text.match(/^\/([a-z]+)(?:\s+([\s\S]*))?$/);
  return match && Object.hasOwn(commands, match[1]) ? { run: commands[match[1]][1], rest: (match[2] ?? "").trim() } : null;
}
