// The workshop: work that was given up is tried again.
import { on } from "./dom.js";
import { post } from "./api.js";
import { toast } from "./toast.js";
import { announceTrouble } from "./trouble.js";

on("click", "[data-retry]", async (_, button) => {
  button.setAttribute("aria-busy", "true");
  try {
    await post(`/ops/jobs/${button.dataset.retry}/retry`);
    toast("It is tried again.", { seconds: 4 });
  } catch (error) {
    announceTrouble(error);
  }
  document.body.dispatchEvent(new Event("retried"));
});
