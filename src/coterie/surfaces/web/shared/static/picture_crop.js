// Choose a picture and crop it to a square: drag to move it, the slider (or the arrow keys on it) to enlarge it.
// A button with data-crop="/path" sends the cropped PNG there.
import { escaped, nodes, on, one } from "./dom.js";
import { put } from "./api.js";
import { showError } from "./errors.js";
import { t } from "./messages.js";

const SIZE = 512;

// Resolves to a picture of 512 × 512 pixels, or to null if the person cancels.
function chooseCropped() {
  const input = document.createElement("input");
  Object.assign(input, { type: "file", accept: "image/png,image/jpeg,image/webp" });
  return new Promise((resolve, reject) => {
    input.addEventListener("cancel", () => resolve(null));
    input.addEventListener("change", () => {
      createImageBitmap(input.files[0]).then(
        (bitmap) => resolve(crop(bitmap)),
        () => reject(new Error(t("This picture cannot be read. Choose a PNG, JPEG or WebP picture."))),
      );
    });
    input.click();
  });
}

on("click", "[data-crop]", async (_, button) => {
  try {
    const picture = await chooseCropped();
    if (!picture) return;
    await put(button.dataset.crop, picture);
    location.reload();
  } catch (error) {
    showError(error);
  }
});

function crop(bitmap) {
  const dialog = build();
  const canvas = one("canvas", dialog);
  const slider = one("input", dialog);
  const context = canvas.getContext("2d");
  const least = SIZE / Math.min(bitmap.width, bitmap.height);
  let x = bitmap.width / 2;
  let y = bitmap.height / 2;
  const draw = () => {
    const scale = least * Number(slider.value);
    const half = SIZE / 2 / scale;
    x = Math.min(Math.max(x, half), bitmap.width - half);
    y = Math.min(Math.max(y, half), bitmap.height - half);
    context.clearRect(0, 0, SIZE, SIZE);
    context.drawImage(bitmap, x - half, y - half, half * 2, half * 2, 0, 0, SIZE, SIZE);
  };
  slider.value = "1";
  slider.oninput = draw;
  canvas.onpointerdown = (event) => canvas.setPointerCapture(event.pointerId);
  canvas.onpointermove = (event) => {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    const perPixel = SIZE / canvas.clientWidth / (least * Number(slider.value));
    x -= event.movementX * perPixel;
    y -= event.movementY * perPixel;
    draw();
  };
  draw();
  dialog.showModal();
  return new Promise((resolve) => {
    let chosen = false;
    one("form", dialog).onsubmit = () => (chosen = true);
    dialog.onclose = () => (chosen ? canvas.toBlob(resolve, "image/png") : resolve(null));
  });
}

function build() {
  const existing = one("#crop");
  if (existing) return existing;
  document.body.append(
    nodes(`<dialog class="dialog" id="crop" aria-labelledby="crop-title"><form class="dialog-sheet" method="dialog">
      <header class="dialog-head"><h2 id="crop-title">${escaped(t("Crop the picture"))}</h2></header>
      <div class="dialog-body"><canvas class="crop-canvas" width="512" height="512" role="img" aria-label="${escaped(t("The cropped picture"))}"></canvas>
        <div class="field"><label for="crop-zoom">${escaped(t("Enlarge"))}</label><input id="crop-zoom" type="range" min="1" max="4" step="0.05"></div></div>
      <footer class="dialog-foot"><button type="submit" class="button button-primary">${escaped(t("Use picture"))}</button><button type="button" class="button button-ghost" data-closes>${escaped(t("Cancel"))}</button></footer>
    </form></dialog>`),
  );
  return one("#crop");
}
