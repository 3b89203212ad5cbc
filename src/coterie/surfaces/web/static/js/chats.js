// The list of chats: which of them have something new since they were last read here.
import { all, one } from "./dom.js";

for (const row of all("[data-chat-list] [data-chat]")) {
  try {
    const seen = Number(localStorage.getItem(`seen:${row.dataset.chat}`) ?? 0);
    const fresh = seen > 0 && Number(row.dataset.seq) > seen;
    row.classList.toggle("chat-row-unread", fresh);
    one(".chat-row-new", row).hidden = !fresh;
  } catch {
    break; // storage is off: nothing is marked
  }
}
