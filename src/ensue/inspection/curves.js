// Curves along a text, drawn by uPlot: the pointer on one looks at the token below it.
const tone = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const TONES = ["a", "b", "c", "d", "e", "good"];

const plots = new Set();  // those that are on the page
function forgetCurves() {
  for (const plot of plots) plot.destroy();
  plots.clear();
}

// Returns a function that draws named values, one for each token, in place of those before.
function curve(part, tokens) {
  let plot = null;
  return (names, ...series) => {
    names = [names].flat();
    plot?.destroy();
    plots.delete(plot);
    const axis = { stroke: tone("ink"), grid: { stroke: tone("line"), width: 1 }, ticks: { stroke: tone("line") } };
    const named = (name, place) => ({
      label: name, stroke: tone(TONES[place % TONES.length]), width: 1.2, points: { show: series[0].length < 120 },
      value: (_, value) => value == null ? "" : round(value),
    });
    plot = new uPlot({
      width: Math.max(320, part.clientWidth), height: 130, legend: { show: names.length > 1 },
      scales: { x: { time: false } },
      axes: [axis, { ...axis, size: 60 }],
      series: [{ label: "token", value: (_, place) => place == null ? "" : `${place + 1}` }, ...names.map(named)],
      cursor: { y: false, drag: { x: true, y: false } },
      hooks: { setCursor: [({ cursor: { idx, event } }) => { if (event && tokens[idx]) look(tokens[idx]); }] },
    }, [series[0].map((_, place) => place), ...series], part);
    plots.add(plot);
  };
}

// A part with curves of its own: {"names": [...], "values": [[...], ...]}, one value for each token of the text.
drawers.curves = (part, numbers, article) => {
  curve(part, [...article.querySelectorAll(".tokens .w")])(numbers.names, ...numbers.values);
};
