// Actions on turns and the chat: regenerate, swipe, edit, rewind, fork, guests, scenes.
import { all, nodes, one } from "../shared/dom.js";
import { editInPlace, turnChanges } from "./turn_changes.js";
import { get, post, remove } from "../shared/api.js";
import { openDialog } from "../shared/dialogs.js";
import { toast } from "../shared/toast.js";
import { plural, t } from "../shared/messages.js";

const UNDO_S = 30;

export function turnActions(chat, turns) {
  const base = `/chats/${chat}`;
  const undo = async () => {
    try {
      await post(`${base}/undo`);
    } catch (error) {
      const { turn } = error.status === 400 ? await get(`${base}/last-rewind`) : {};
      if (!turn) throw error;
      // What cannot be undone any more can be had as another chat.
      const fork = async () => location.assign(`${base.replace(/[^/]+$/, "")}${(await post(`${base}/fork`, { turn })).id}`);
      return toast(error.message, { kind: "danger", action: t("Fork there"), act: fork, seconds: UNDO_S });
    }
    toast(t("Rewind undone."), { seconds: 4 });
  };
  return {
    ...turnChanges(chat, turns),
    continue: () => post(`${base}/continue`, {}),
    "add-reply": () => post(`${base}/reply`, { speaker: one("#who select").value || null }),
    // After a refusal, Retry waits until the provider may be asked again.
    regenerate: async (button) => {
      const wait = Number(button?.dataset.retryAt ?? 0) - Date.now();
      if (wait > 0) {
        const text = button.textContent;
        button.textContent = t("Waiting {seconds} s", { seconds: Math.ceil(wait / 1000) });
        await new Promise((done) => setTimeout(done, wait));
        button.textContent = text;
        if (!button.isConnected) return;
      }
      await post(`${base}/regenerate`, {});
    },
    choose: (button) => button.dataset.reply && post(`${base}/choose`, { reply: button.dataset.reply }),
    edit: (button) => edit(base, button.closest(".turn")),
    rewind: async (_, turn) => {
      const answer = await fetch(`${base}/rewind/${turn}`, { headers: { Accept: "text/html", "HX-Request": "true" } });
      if (!answer.ok) throw new Error((await answer.json()).error);
      one("#rewind-sheet").replaceChildren(nodes(await answer.text()));
      openDialog(one("#rewind"));
    },
    "rewind-now": async (button) => {
      one("#rewind").close();
      await post(`${base}/rewind`, { turn: button.dataset.turn });
      const count = Number(button.dataset.count);
      toast(plural("Rewound {count} turn.", "Rewound {count} turns.", Number(count)), { action: t("Undo"), act: undo, seconds: UNDO_S });
    },
    undo,
    fork: async (_, turn) => location.assign(`/chats/${(await post(`${base}/fork`, { turn })).id}`),
    copy: async (_, turn) => {
      await navigator.clipboard.writeText(one(`#t-${turn} .turn-text`).innerText.trim());
      toast(t("Copied."), { seconds: 2 });
    },
    prompt: (_, turn) => location.assign(`${base}/prompt/${turn}`),
    invite: (button) => post(`${base}/guests`, { character: button.dataset.character }),
    dismiss: (button) => remove(`${base}/guests/${button.dataset.character}`),
    "close-scene": async () => {
      const closing = toast(t("Closing the scene …"), { seconds: 60 });
      try {
        await post(`${base}/scene/close`);
      } finally {
        closing();
      }
      toast(t("The scene is closed; the next one begins."), { seconds: 4 });
    },
    swipe: (step) => {
      const buttons = turns.last ? all(".turn-swipes [data-act=choose]", turns.last) : [];
      buttons[step < 0 ? 0 : 1]?.click();
    },
  };
}

// Edits the last message in place; submitting regenerates the reply.
async function edit(base, turn) {
  const { turns } = await get(`${base}/turns?limit=20`);
  const message = turns.find(({ id }) => id === turn.dataset.turn);
  if (message) editInPlace(turn, message.text, { label: t("Edit your message"), save: t("Ask again"), submit: (text) => post(`${base}/regenerate`, { text }) });
}
