// Package traffic is the conversation the end-to-end tests hold through the device under test. Server and client are the same code on both sides: the host
// side runs them inside namespaces, the guest side inside the guest program, so every check exists outbound and through a forward.
//
// A connection (TCP, UNIX or vsock) starts with one request line:
//
//	get N SEED [CHUNK]   the server sends N bytes of the stream SEED, CHUNK at a time, and closes
//	put           the server reads to the end of the stream, answers "N SHA256\n" and closes        (the client half-closes first)
//	half N SEED KEY   the server sends N bytes and half-closes, reads to the end and stores "N SHA256" under KEY   (the server half-closes first)
//	hold KEY      the server reads until the end and stores how it ended: "eof", "reset" or the error
//	reset         the server answers "x" and resets the connection
//	sink N        the server reads N bytes and answers how many came: for measuring, nothing is hashed
//	source N CHUNK  the server sends N bytes, CHUNK at a time, and closes: for measuring
//	echo          the server returns what it reads
//	peer          the server answers "ADDR:PORT\n" of its peer
//	result KEY    the server answers what was stored under KEY, waiting up to 5 s, and "\n"
//
// A UDP datagram is returned as it is, except "peer" (answered with the peer's address) and "size N" (answered with N bytes of stream N).
// Streams are pseudo-random bytes of a seed; both sides compare SHA-256.
package traffic
