// Proposal cards: j and k select, single keys accept, decline or edit, and an accept can be undone.
import { all, escaped, nodes, one } from "../shared/dom.js";
import { get, post } from "../shared/api.js";
import { toast } from "../shared/toast.js";
import { t } from "../shared/messages.js";

const UNDO_S = 12;

export class Proposals {
  constructor(list, { chosen, before }) {
    this.list = list;
    this.chosen = chosen; // called with the id of the selected card
    this.before = before; // sends pending edits before a decision
    this.current = "";
    this.accepted = [];
  }

  get waiting() {
    return all(".proposal[data-state=pending]", this.list);
  }

  // `focus` the card, `show` it in the list, `point` to it in the text.
  choose(id, { focus = true, show = true, point = show } = {}) {
    this.current = id;
    for (const card of all(".proposal", this.list)) card.toggleAttribute("aria-current", card.dataset.change === id);
    const card = this.card(id);
    if (show) {
      card?.closest("details")?.setAttribute("open", "");
      card?.scrollIntoView({ block: "nearest" });
    }
    if (focus) card?.focus({ preventScroll: true });
    this.chosen(id, point);
  }

  card(id) {
    return id ? document.getElementById(`c-${id}`) : null;
  }

  step(by) {
    const cards = this.waiting;
    if (!cards.length) return;
    const at = cards.findIndex((card) => card.dataset.change === this.current);
    const to = at < 0 ? (by > 0 ? 0 : cards.length - 1) : Math.max(0, Math.min(cards.length - 1, at + by));
    this.choose(cards[to].dataset.change);
  }

  // After a decision the next card is selected, so that a, a, a accepts one after another.
  #next(id) {
    const cards = this.waiting;
    const at = cards.findIndex((card) => card.dataset.change === id);
    const next = cards[at + 1] ?? cards[at - 1];
    this.after = next?.dataset.change ?? "";
  }

  // After a refresh the same card is selected, or the next one. The list may not show the decision yet.
  fetched() {
    const waits = this.card(this.current)?.dataset.state === "pending";
    const id = waits ? this.current : (this.after ?? "");
    const lost = document.activeElement === document.body; // the focused card was removed
    if (!waits) this.after = undefined;
    if (id && this.card(id)) this.choose(id, { focus: lost, show: false });
    else if (this.current && !this.card(this.current)) this.current = "";
  }

  async accept(id = this.current, text) {
    if (!this.#may(id, "accept")) return;
    this.#next(id);
    await this.before();
    await post(`/draft/changes/${id}/accept`, text === undefined ? {} : { text });
    this.accepted.push(id);
    toast(t("Accepted."), { kind: "success", action: t("Undo"), act: () => this.undo(id), seconds: UNDO_S });
  }

  async undo(id = this.accepted.at(-1) ?? one(".proposal[data-state*=accepted]", this.list)?.dataset.change) {
    if (!id) return toast(t("Nothing was accepted yet."), { seconds: 3 });
    await this.before();
    await post(`/draft/changes/${id}/undo`);
    this.accepted = this.accepted.filter((other) => other !== id);
    this.current = id;
    toast(t("Undone. The proposal is pending again."), { seconds: 4 });
  }

  async repropose(id = this.current) {
    await this.before();
    const made = await post(`/draft/changes/${id}/repropose`);
    this.current = made.id;
  }

  decline(id = this.current) {
    if (!this.#may(id, "decline")) return;
    this.#form(id, t("Reason (optional; the character sees it)"), "", t("Decline"), async (comment) => {
      this.#next(id);
      await post(`/draft/changes/${id}/decline`, { comment });
      toast(t("Declined."), { seconds: 3 });
    });
  }

  async edit(id = this.current) {
    if (!this.#may(id, "accept")) return;
    const { proposed } = await get(`/draft/changes/${id}`);
    this.#form(id, t("What shall stand there instead"), proposed, t("Accept as edited"), (text) => this.accept(id, text));
  }

  #may(id, act) {
    const card = this.card(id);
    if (card && one(`[data-act=${act}]`, card)) return true;
    if (!id) toast(t("Choose a proposal first: j and k."), { seconds: 3 });
    return false;
  }

  #form(id, label, value, done, act) {
    const card = this.card(id);
    if (one("form", card)) return one("textarea", card).focus();
    const form = nodes(`<form class="proposal-form"><label class="field-hint"></label><textarea rows="2"></textarea><div class="row">
      <button type="submit" class="button button-primary button-small"></button><button type="button" class="button button-ghost button-small">${escaped(t("Cancel"))}</button></div></form>`).firstElementChild;
    const field = one("textarea", form);
    field.id = `form-${id}`;
    one("label", form).htmlFor = field.id;
    one("label", form).textContent = label;
    one("[type=submit]", form).textContent = done;
    field.value = value;
    const acts = one(".proposal-acts", card);
    const close = () => {
      form.remove();
      acts.hidden = false;
      card.focus({ preventScroll: true });
    };
    one("[type=button]", form).addEventListener("click", close);
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) form.requestSubmit();
      event.stopPropagation();
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const text = field.value;
      close();
      try {
        await act(text);
      } catch (error) {
        (await import("../shared/errors.js")).showError(error);
      }
    });
    acts.hidden = true;
    acts.before(form);
    field.focus();
  }
}
