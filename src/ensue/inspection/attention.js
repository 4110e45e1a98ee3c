// The attention weights of all heads as pictures, and a text colored by the weights of one head.
drawers.attention = (part, attention) => {
  const keys = part.querySelectorAll(".looks .w"), heads = part.querySelector(".heads");
  const weights = bytes(attention.values), size = attention.size;
  const [red, green, blue] = tone("d").match(/\w\w/g).map(digits => parseInt(digits, 16));
  let head = 0;
  const show = row => {
    const start = (head * size + row) * size, attended = weights.subarray(start, start + size);
    const max = Math.max(...attended, 1);
    keys.forEach((token, place) => token.style.setProperty("--s", `${(80 * attended[place] / max).toFixed(0)}%`));
  };
  attention.names.forEach((name, number) => {
    const picture = document.createElement("canvas"), button = element("button", "head", name);
    picture.width = picture.height = size;
    const context = picture.getContext("2d"), image = context.createImageData(size, size);
    for (let pixel = 0; pixel < size * size; pixel++) {
      const weight = weights[number * size * size + pixel];
      image.data.set([red, green, blue, weight && Math.min(255, 40 + 1.5 * weight)], 4 * pixel);
    }
    context.putImageData(image, 0, 0);
    button.prepend(picture);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const chosen = heads.querySelector(".chosen");
      chosen?.classList.remove("chosen");
      chosen?.setAttribute("aria-pressed", "false");
      button.classList.add("chosen");
      button.setAttribute("aria-pressed", "true");
      head = number;
      show(size - 1);
    });
    heads.append(button);
  });
  heads.firstChild.click();
  part.addEventListener("look", event => {
    const row = event.target.dataset.row;
    if (row !== undefined) show(Number(row));
  });
};
