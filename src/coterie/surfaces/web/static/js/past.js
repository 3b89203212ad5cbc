// What can be done to what was said: another reply, another choice, back, apart, and who is there. S6, S22–S24
import { all, nodes, one } from "./dom.js";
import { get, post, remove } from "./api.js";
import { openDialog } from "./surfaces.js";
import { toast } from "./toast.js";

const UNDO_S = 30;

export function acts(chat, turns) {
  const base = `/chats/${chat}`;
  const undo = async () => {
    await post(`${base}/undo`);
    toast("Everything is back.", { seconds: 4 });
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
    invite: (button) => post(`${base}/guests`, { bot: button.dataset.bot }),
    dismiss: (button) => remove(`${base}/guests/${button.dataset.bot}`),
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

// The last message becomes a field in its place; sending asks for another reply to the changed words.
async function edit(base, turn) {
  const text = one(".turn-text", turn);
  if (one("form", turn)) return;
  const { turns } = await get(`${base}/turns?limit=2`);
  const said = turns.find(({ id }) => id === turn.dataset.turn);
  if (!said) return;
  const form = nodes(`<form class="turn-edit"><label class="unseen" for="edit-said">Change what you said</label>
    <textarea id="edit-said" rows="2"></textarea><div class="row"><button type="submit" class="button button-primary button-small">Ask again</button>
    <button type="button" class="button button-ghost button-small">Cancel</button></div></form>`).firstElementChild;
  const field = one("textarea", form);
  field.value = said.text;
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
      const { announceTrouble } = await import("./trouble.js");
      announceTrouble(error);
    }
  });
  text.hidden = true;
  text.after(form);
  field.focus();
}
