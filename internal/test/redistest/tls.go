package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are a private certificate authority and one certificate of it,
// for 127.0.0.1, which servers and clients share. They are files as well, as
// redis-server and SSL_CERT_FILE want them; the files are removed at cleanup.
type Certificates struct {
	CAFile   string
	CertFile string
	KeyFile  string

	Roots *x509.CertPool  // the authority and nothing else
	Pair  tls.Certificate // CertFile and KeyFile

	authority *x509.Certificate
	signer    *ecdsa.PrivateKey // its key
	key       *ecdsa.PrivateKey // the certificate's
}

// NewCertificates makes an authority and a certificate.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	c := &Certificates{signer: newKey(t), key: newKey(t), Roots: x509.NewCertPool()}
	c.authority = sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "redistest CA"},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, c.signer, c.signer)

	c.Roots.AddCert(c.authority)
	secret, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	c.CertFile = filepath.Join(dir, "cert.pem")
	c.CAFile = writePEM(t, filepath.Join(dir, "ca.pem"), "CERTIFICATE", c.authority.Raw)
	c.KeyFile = writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", secret)
	c.Renew(t, time.Now().Add(24*time.Hour))
	return c
}

// Renew replaces the certificate by one that expires at the given time, exact to the
// second. A server reads the file when it starts, or at CONFIG SET tls-cert-file.
func (c *Certificates) Renew(t testing.TB, expires time.Time) {
	t.Helper()
	cert := sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // nodes of a cluster are both
		NotAfter:    expires,
	}, c.authority, c.key, c.signer)
	c.Pair = tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: c.key}
	writePEM(t, c.CertFile, "CERTIFICATE", cert.Raw)
}

// client is a configuration that trusts the authority and shows the
// certificate to servers that ask for one.
func (c *Certificates) client() *tls.Config {
	return &tls.Config{RootCAs: c.Roots, Certificates: []tls.Certificate{c.Pair}}
}

// args make a redis-server use the certificate, without asking clients for
// theirs.
func (c *Certificates) args() []string {
	return []string{
		"--tls-cert-file", c.CertFile, "--tls-key-file", c.KeyFile, "--tls-ca-cert-file", c.CAFile,
		"--tls-auth-clients", "no", "--tls-replication", "yes",
	}
}

// StartTLS runs a server that speaks TLS only (see [Start]). It asks for no
// client certificate unless args say "--tls-auth-clients", "yes".
func StartTLS(t testing.TB, c *Certificates, args ...string) *Server {
	t.Helper()
	Need(t)
	s, err := boot(t, options{args: args, certs: c})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// StartTLSCluster runs a cluster that speaks TLS only, also between its nodes
// (see [StartCluster]).
func StartTLSCluster(t testing.TB, c *Certificates, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, c, append([]string{"--tls-cluster", "yes"}, args...))
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign completes a template with what all certificates have in common. Without
// a parent it signs itself.
func sign(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func writePEM(t testing.TB, file, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
