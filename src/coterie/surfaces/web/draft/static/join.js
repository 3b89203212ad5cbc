// Exchanges the token of a link, which is in the fragment of the address, for a cookie, and opens the document.
import { one } from "../shared/dom.js";
import { post } from "../shared/api.js";
import { t } from "../shared/messages.js";

async function join() {
  const token = location.hash.slice(1);
  if (!token) return;
  history.replaceState(null, "", "/join");
  one("#join-status").textContent = t("Opening the document …");
  try {
    location.replace((await post("/join", { token })).address);
  } catch (error) {
    one("#join-status").textContent = error.message;
  }
}

addEventListener("hashchange", join);
join();
