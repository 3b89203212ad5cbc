// The login page has only a form.
import { startForms } from "./forms.js";

startForms();
