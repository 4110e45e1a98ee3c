// A section with series of numbers for the tokens: {name: [number or null, ...]}. A button colors the text by a series.
drawers.colors = (part, numbers, article) => {
  const sendColors = (name, isOffer) => {
    article.dispatchEvent(new CustomEvent("color", { detail: { name, values: numbers[name], isOffer } }));
  };
  for (const name of Object.keys(numbers)) sendColors(name, true);
  for (const button of part.querySelectorAll("[data-color]")) button.addEventListener("click", () => {
    sendColors(button.dataset.color, false);
    article.querySelector('[data-draw="tokens"]').scrollIntoView({ block: "start" });
  });
};
