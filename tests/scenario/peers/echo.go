// A server of Go's net/http that says in X-Echo what it read of each request: method, target,
// number of body bytes and the first half of their SHA-1.
package main

import (
	"crypto/sha1"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Echo", fmt.Sprintf("%s %s %d %.10x", r.Method, r.RequestURI, len(body), sha1.Sum(body)))
}

func main() {
	log.SetOutput(io.Discard)
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	panic((&http.Server{Handler: http.HandlerFunc(echo), DisableGeneralOptionsHandler: true}).Serve(listener))
}
