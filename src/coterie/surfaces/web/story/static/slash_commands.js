// Commands that can be typed into the message field, such as "/continue" or "/reply Teodor".

export function slashCommands(actions) {
  return {
    continue: ["Continue the last reply", () => actions.run("continue")],
    regenerate: ["Another reply", () => actions.run("regenerate")],
    reply: ["NAME: let somebody reply", (rest) => actions.reply(rest)],
    suggest: ["Write for me", (rest) => actions.suggest(rest)],
    send: ["TEXT: send without a reply", (rest) => actions.sendOnly(rest)],
    edit: ["TEXT: change the last turn", (rest) => actions.editLast(rest)],
    hide: ["Hide the last turn from prompts", () => actions.onLast("hide")],
    delete: ["Delete the last turn", () => actions.onLast("delete")],
    bookmark: ["Bookmark the last turn", () => actions.onLast("bookmark")],
    bookmarks: ["List the bookmarks", () => actions.run("bookmarks")],
    fork: ["Fork at the last turn", () => actions.onLast("fork")],
    undo: ["Undo the last rewind", () => actions.run("undo")],
    scene: ["End the scene", () => actions.run("close-scene")],
    go: ["PLACE: go to another place", (rest) => actions.drawer("scene.place", rest)],
    time: ["2030-01-01T18:00: set the clock", (rest) => actions.drawer("clock", rest)],
    weather: ["TEXT: set the weather", (rest) => actions.drawer("weather", rest)],
    order: ["automatic, in turn, everyone or manual: who replies", (rest) => actions.drawer("reply_order", rest)],
    invite: ["NAME: invite a character", (rest) => actions.invite(rest)],
    remove: ["NAME: remove a guest", (rest) => actions.removeGuest(rest)],
  };
}

// The command in a text, and what follows it; null if the text is an ordinary message.
export function parseCommand(text, commands) {
  const match = text.match(/^\/([a-z]+)(?:\s+([\s\S]*))?$/);
  return match && Object.hasOwn(commands, match[1]) ? { run: commands[match[1]][1], rest: (match[2] ?? "").trim() } : null;
}
