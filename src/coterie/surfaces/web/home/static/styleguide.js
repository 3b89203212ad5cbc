import { on } from "../shared/dom.js";
import { toast } from "../shared/toast.js";

on("click", "[data-guide-toast]", () => toast("Rewound 6 turns.", { action: "Undo", act: () => toast("They are back.") }));
