// The heads of all layers as pictures, and a text colored by what one of them looks at.
drawers.attention = (part, attention) => {
  const looks = part.querySelectorAll(".looks .w"), heads = part.querySelector(".heads");
  const weights = bytes(attention.values), size = attention.size;
  const [red, green, blue] = tone("d").match(/\w\w/g).map(part => parseInt(part, 16));
  let head = 0;
  const show = row => {
    const of = weights.subarray((head * size + row) * size, (head * size + row + 1) * size), most = Math.max(...of, 1);
    looks.forEach((token, place) => token.style.setProperty("--s", `${(80 * of[place] / most).toFixed(0)}%`));
  };
  attention.names.forEach((name, number) => {
    const picture = document.createElement("canvas"), button = element("button", "head", name);
    picture.width = picture.height = size;
    const context = picture.getContext("2d"), image = context.createImageData(size, size);
    for (let place = 0; place < size * size; place++) {
      const weight = weights[number * size * size + place];
      image.data.set([red, green, blue, weight && Math.min(255, 40 + 1.5 * weight)], 4 * place);
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
