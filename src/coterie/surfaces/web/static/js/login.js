// The door has no rail and no palette: only a form.
import { startForms } from "./forms.js";

startForms();
