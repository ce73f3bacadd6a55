// Browsers give no workers to pages opened from a disk. There a hidden frame takes the place of the search's worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inner = frame.contentWindow
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inner.document.createElement("script")
      const loaded = new Promise(done => script.addEventListener("load", done))
      script.src = url
      inner.document.body.append(script)
      this.postMessage = data => loaded.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
      this.terminate = () => frame.remove()
    }
  }
}
