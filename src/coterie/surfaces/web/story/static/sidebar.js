// The list of chats beside a chat, with a filter; loaded when it is opened and when the filter changes.
import { nodes, on, one } from "../shared/dom.js";

const chat = one("#chat").dataset.chat;
const field = one("#sidebar-filter");
let timer = 0;

async function load() {
  const query = new URLSearchParams({ chat, q: field.value });
  const answer = await fetch(`/chats/sidebar?${query}`, { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.ok) one("#sidebar").replaceChildren(nodes(await answer.text()));
}

on("click", "[data-opens='#chats']", load);
field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(load, 150);
});
