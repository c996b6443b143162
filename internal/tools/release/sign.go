package main

import (
	"errors"
	"os"
	"path/filepath"

	"aead.dev/minisign"
)

// sign signs SHA256SUMS in dist with a secret key of minisign, whose password is in SIGN_PASSWORD; `minisign -V -p KEY.pub
// -m SHA256SUMS` checks it. The same content and key give the same signature.
func sign(dist, key string) error {
	secret, err := minisign.PrivateKeyFromFile(os.Getenv("SIGN_PASSWORD"), key)
	if err != nil {
		return err
	}
	file := filepath.Join(dist, "SHA256SUMS")
	sums, err := os.ReadFile(file)
	if err != nil {
		return errors.Join(errors.New("run make release first"), err)
	}
	signature := minisign.SignWithComments(secret, sums, "SHA256SUMS of a release of Refloat", "signature of a release of Refloat")
	return os.WriteFile(file+".minisig", signature, 0o644)
}
