// Changes of single turns: edit, earlier wordings, hide, delete, bookmarks; and lists of bookmarks and deleted turns.
import { all, nodes, one } from "../shared/dom.js";
import { api, get, post, put } from "../shared/api.js";
import { openDialog } from "../shared/dialogs.js";
import { showError } from "../shared/errors.js";
import { toast } from "../shared/toast.js";
import { plural, t } from "../shared/messages.js";
import { scrollToTurn } from "./scroll_to_turn.js";

const UNDO_S = 30;

export function turnChanges(chat, turns) {
  const base = `/chats/${chat}`;
  let selected = "";

  const select = (turn) => {
    for (const shown of all(".turn-selected")) shown.classList.remove("turn-selected");
    selected = turn ?? "";
    document.getElementById(`t-${selected}`)?.classList.add("turn-selected");
  };
  const restore = async (ids) => {
    await post(`${base}/turns/restore`, { turns: ids });
    toast(t("Restored."), { seconds: 4 });
  };
  const remove = async (first, last) => {
    const { turns: ids } = await post(`${base}/turns/delete`, { first, last });
    select("");
    toast(ids.length === 1 ? t("Turn deleted.") : plural("{count} turns deleted.", "{count} turns deleted.", ids.length), { action: t("Undo"), act: () => restore(ids), seconds: UNDO_S });
  };
  const hide = async (first, last, hidden) => {
    const { turns: ids } = await post(`${base}/turns/hide`, { first, last, hidden });
    select("");
    toast(hidden ? t("Hidden from prompts: {count}.", { count: ids.length }) : t("Part of prompts again."), { seconds: 4 });
  };
  const isHidden = (turn) => document.getElementById(`t-${turn}`)?.classList.contains("turn-hidden") ?? false;
  const refresh = () => turns.refresh();

  return {
    // What the menu of a turn offers depends on the turn.
    prepareMenu(menu, turn) {
      const item = (act) => one(`[data-act=${act}]`, menu);
      const label = (act, text) => (one("span", item(act)).textContent = text);
      item("versions").hidden = !("edited" in turn.dataset);
      item("continue").hidden = turn !== turns.last || turn.classList.contains("turn-you");
      item("hide-selection").hidden = item("delete-selection").hidden = !selected || selected === turn.dataset.turn;
      label("hide", turn.classList.contains("turn-hidden") ? t("Use in prompts again") : t("Hide from prompts"));
      label("bookmark", turn.classList.contains("turn-bookmarked") ? t("Remove the bookmark") : t("Bookmark"));
    },
    select: (_, turn) => select(turn),
    "edit-text": (_, turn) => editText(base, turn),
    versions: async (_, turn) => {
      const texts = await get(`${base}/turns/${turn}/versions`);
      showList(t("Earlier wordings"), "", texts.slice(0, -1), (text) => ({
        text,
        label: t("Use this"),
        act: () => api("PATCH", `${base}/turns/${turn}`, { text }),
      }));
    },
    hide: (_, turn) => hide(turn, null, !isHidden(turn)),
    "hide-selection": (_, turn) => hide(selected, turn, true),
    delete: (_, turn) => remove(turn, null),
    "delete-selection": (_, turn) => remove(selected, turn),
    analyse: async (button, turn) => {
      button.disabled = true;
      try {
        await post(`${base}/turns/${turn}/analysis`);
      } catch (error) {
        button.disabled = false;
        throw error;
      }
      toast(t("The memory is updated in the background."), { seconds: 4 });
    },
    bookmark: async (_, turn) => {
      const shown = document.getElementById(`t-${turn}`);
      const bookmarked = !shown.classList.contains("turn-bookmarked");
      await put(`${base}/turns/${turn}/bookmark`, { bookmarked });
      shown.classList.toggle("turn-bookmarked", bookmarked);
      toast(bookmarked ? t("Bookmarked.") : t("Bookmark removed."), { seconds: 3 });
    },
    bookmarks: async () => {
      const found = await get(`${base}/bookmarks`);
      showList(t("Bookmarks"), t("Turns that you bookmark appear here."), found, ({ turn, seq, name }) => ({
        text: name,
        label: t("Show"),
        act: () => (document.getElementById(`t-${turn}`) ? scrollToTurn(`t-${turn}`) : location.assign(`${base}?at=${seq}#t-${turn}`)),
      }));
    },
    deleted: async () => {
      const found = await get(`${base}/turns/deleted`);
      showList(t("Deleted turns"), t("Turns that you delete appear here."), found, ({ id, name, text }) => ({
        text: `${name}: ${text.slice(0, 300)}`,
        label: t("Restore"),
        act: async () => {
          await restore([id]);
          await refresh();
        },
      }));
    },
  };
}

function showList(title, empty, entries, describe) {
  const dialog = one("#list-dialog");
  one("#list-title").textContent = title;
  one("#list-empty").textContent = entries.length ? "" : empty;
  one("#list-entries").replaceChildren(
    ...entries.map((entry) => {
      const { text, label, act } = describe(entry);
      const item = nodes(`<li><span class="entry-text" dir="auto"></span><button type="button" class="button button-plain button-small"></button></li>`).firstElementChild;
      one(".entry-text", item).textContent = text;
      const button = one("button", item);
      button.textContent = label;
      button.addEventListener("click", async () => {
        dialog.close();
        try {
          await act();
        } catch (error) {
          showError(error);
        }
      });
      return item;
    }),
  );
  openDialog(dialog);
}

async function editText(base, id) {
  const turn = document.getElementById(`t-${id}`);
  const seq = Number(turn.dataset.seq);
  const { turns } = await get(`${base}/turns?limit=1&before=${seq + 1}`);
  editInPlace(turn, turns[0].text, { label: t("Edit the text"), save: t("Save"), submit: (text) => api("PATCH", `${base}/turns/${id}`, { text }) });
}

// Replaces the text of a turn by a form. Enter saves, Escape closes.
export function editInPlace(turn, value, { label, save, submit }) {
  const text = one(".turn-text", turn);
  if (one("form", turn)) return;
  const form = nodes(`<form class="turn-edit"><label class="visually-hidden" for="edit-message"></label>
    <textarea id="edit-message" rows="2"></textarea><div class="row"><button type="submit" class="button button-primary button-small"></button>
    <button type="button" class="button button-ghost button-small">Cancel</button></div></form>`).firstElementChild;
  one("label", form).textContent = label;
  one("[type=submit]", form).textContent = save;
  const field = one("textarea", form);
  field.value = value;
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
      await submit(field.value);
      close();
    } catch (error) {
      showError(error);
    }
  });
  text.hidden = true;
  text.after(form);
  field.focus();
}
