// Actions on turns and the chat: regenerate, swipe, edit, rewind, fork, guests, scenes.
import { all, nodes, one } from "../shared/dom.js";
import { get, post, remove } from "../shared/api.js";
import { openDialog } from "../shared/dialogs.js";
import { toast } from "../shared/toast.js";

const UNDO_S = 30;

export function turnActions(chat, turns) {
  const base = `/chats/${chat}`;
  const undo = async () => {
    await post(`${base}/undo`);
    toast("Rewind undone.", { seconds: 4 });
  };
  return {
    regenerate: () => post(`${base}/regenerate`, {}),
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
      toast(`Rewound ${count} ${count === 1 ? "turn" : "turns"}.`, { action: "Undo", act: undo, seconds: UNDO_S });
    },
    undo,
    fork: async (_, turn) => location.assign(`/chats/${(await post(`${base}/fork`, { turn })).id}`),
    copy: async (_, turn) => {
      await navigator.clipboard.writeText(one(`#t-${turn} .turn-text`).innerText.trim());
      toast("Copied.", { seconds: 2 });
    },
    prompt: (_, turn) => location.assign(`${base}/prompt/${turn}`),
    invite: (button) => post(`${base}/guests`, { character: button.dataset.character }),
    dismiss: (button) => remove(`${base}/guests/${button.dataset.character}`),
    "close-scene": async () => {
      const closing = toast("Closing the scene …", { seconds: 60 });
      try {
        await post(`${base}/scene/close`);
      } finally {
        closing();
      }
      toast("The scene is closed; the next one begins.", { seconds: 4 });
    },
    swipe: (step) => {
      const buttons = turns.last ? all(".turn-swipes [data-act=choose]", turns.last) : [];
      buttons[step < 0 ? 0 : 1]?.click();
    },
  };
}

// Edits the last message in place; submitting regenerates the reply.
async function edit(base, turn) {
  const text = one(".turn-text", turn);
  if (one("form", turn)) return;
  const { turns } = await get(`${base}/turns?limit=2`);
  const message = turns.find(({ id }) => id === turn.dataset.turn);
  if (!message) return;
  const form = nodes(`<form class="turn-edit"><label class="visually-hidden" for="edit-message">Edit your message</label>
    <textarea id="edit-message" rows="2"></textarea><div class="row"><button type="submit" class="button button-primary button-small">Ask again</button>
    <button type="button" class="button button-ghost button-small">Cancel</button></div></form>`).firstElementChild;
  const field = one("textarea", form);
  field.value = message.text;
  const close = () => {
    form.remove();
    text.hidden = false;
  };
  one("[type=button]", form).addEventListener("click", close);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await post(`${base}/regenerate`, { text: field.value });
      close();
    } catch (error) {
      const { showError } = await import("../shared/errors.js");
      showError(error);
    }
  });
  text.hidden = true;
  text.after(form);
  field.focus();
}
