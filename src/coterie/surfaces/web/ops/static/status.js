// System status: retry failed jobs.
import { on } from "../shared/dom.js";
import { post } from "../shared/api.js";
import { toast } from "../shared/toast.js";
import { showError } from "../shared/errors.js";
import { t } from "../shared/messages.js";

on("click", "[data-retry]", async (_, button) => {
  button.setAttribute("aria-busy", "true");
  try {
    await post(`/ops/jobs/${button.dataset.retry}/retry`);
    toast(t("Retrying."), { seconds: 4 });
  } catch (error) {
    showError(error);
  }
  document.body.dispatchEvent(new Event("retried"));
});
