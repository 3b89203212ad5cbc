// Messengers: what was entered is tested at once; the state is shown live by the server's fragment.
import { all, nodes, on, one } from "../shared/dom.js";
import { api, post } from "../shared/api.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { plural, t } from "../shared/messages.js";

const POLL_MS = 2000;

// A server that restarts does not answer for a while; the next try shows the state.
async function showStates() {
  for (const place of all("[data-messenger-status]")) {
    const answer = await fetch(place.dataset.messengerStatus, { headers: { Accept: "text/html" } }).catch(() => null);
    if (!answer?.ok) continue;
    place.replaceChildren(nodes(await answer.text()));
  }
}

setInterval(() => document.hidden || showStates(), POLL_MS);

on("submit", "form[data-messenger-form]", async (event, form) => {
  event.preventDefault();
  const problem = one("[data-messenger-error]", form);
  const button = one("[type=submit]", form);
  problem.hidden = true;
  button.setAttribute("aria-busy", "true");
  try {
    const values = Object.fromEntries(new FormData(form).entries());
    const answer = await post(`/messengers/${form.dataset.messengerForm}`, { values });
    form.reset();
    toast(t("Connected as {account}.", { account: answer.account }), { kind: "success" });
    showStates();
  } catch (error) {
    problem.textContent = error.what ? `${error.what} ${error.fix ?? ""}`.trim() : error.message;
    problem.hidden = false;
  } finally {
    button.removeAttribute("aria-busy");
  }
});

on("click", "[data-messenger-off]", async (_, button) => {
  try {
    await api("DELETE", `/messengers/${button.dataset.messengerOff}`);
    showStates();
  } catch (error) {
    showError(error);
  }
});

on("click", "[data-messenger-answer]", async (_, button) => {
  const { messengerAnswer, question, choice } = button.dataset;
  try {
    await post(`/messengers/${messengerAnswer}/answer`, { question, choice });
  } catch (error) {
    showError(error);
  }
  showStates();
});

on("click", "[data-messenger-open]", async (_, button) => {
  const name = button.dataset.messengerOpen;
  const place = one("[data-messenger-open-result]", button.closest("[data-messenger]"));
  try {
    const chat = await post(`/messengers/${name}/open`);
    const link = Object.assign(document.createElement("a"), { href: chat.link, textContent: chat.link, rel: "noreferrer" });
    const note = document.createElement("p");
    note.append(plural("Open this on your phone or here within {count} minutes:", "Open this on your phone or here within {count} minutes:", chat.minutes), " ", link);
    if (chat.write) {
      const text = Object.assign(document.createElement("code"), { textContent: chat.write });
      note.append(t(". Then write to the bot:"), " ", text);
    }
    const code = nodes(chat.qr).firstElementChild;
    code.setAttribute("role", "img");
    code.setAttribute("aria-label", t("The same address as a QR code"));
    place.replaceChildren(note, code);
  } catch (error) {
    showError(error);
  }
});
