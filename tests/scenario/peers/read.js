// Reads an answer with node's http for each line "METHOD HOST:PORT" and says in a line of JSON
// what it read, or that it could not.
const http = require('http');
const { createHash } = require('crypto');
require('readline').createInterface({ input: process.stdin }).on('line', line => {
  const [method, address] = line.split(' ');
  const [host, port] = address.split(':');
  let said = false;
  const say = what => { if (!said) { said = true; console.log(JSON.stringify(what)); } };
  const req = http.request({ method, host, port, agent: false, path: '/' }, res => {
    const hash = createHash('sha1');
    let size = 0;
    res.on('data', part => { hash.update(part); size += part.length; });
    res.on('error', () => say(null));
    res.on('aborted', () => say(null));
    res.on('end', () => say(res.complete ? [res.statusCode, size, hash.digest('hex').slice(0, 20)] : null));
    res.on('close', () => say(null));
  });
  req.on('upgrade', (res, socket) => { socket.destroy(); say(null); });
  req.on('error', () => say(null));
  req.on('close', () => say(null));
  req.end();
});
