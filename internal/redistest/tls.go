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

// Certificates are a private certificate authority and a certificate it has
// signed, which servers and clients share. They are files as well, because that
// is how redis-server and SSL_CERT_FILE want them; the files are removed at
// cleanup.
type Certificates struct {
	CAFile   string
	CertFile string // for 127.0.0.1 and what NewCertificates was given
	KeyFile  string

	Roots *x509.CertPool  // holds the authority and nothing else
	Pair  tls.Certificate // CertFile and KeyFile

	ca    *x509.Certificate
	caKey *ecdsa.PrivateKey
}

// NewCertificates makes an authority and a certificate for 127.0.0.1 and for
// names, which are DNS names.
func NewCertificates(t testing.TB, names ...string) *Certificates {
	t.Helper()
	caKey := newKey(t)
	ca := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "redistest CA"},
		IsCA:    true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, caKey, caKey)
	c := &Certificates{ca: ca, caKey: caKey, Roots: x509.NewCertPool()}
	c.Roots.AddCert(ca)
	c.CAFile = writePEM(t, "ca.pem", "CERTIFICATE", ca.Raw)
	c.CertFile, c.KeyFile = c.Issue(t, names...)
	var err error
	if c.Pair, err = tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
		t.Fatal(err)
	}
	return c
}

// Issue makes one more certificate for 127.0.0.1 and for names.
func (c *Certificates) Issue(t testing.TB, names ...string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	cert := sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    names,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // nodes of a cluster are both
	}, c.ca, key, c.caKey)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "cert.pem", "CERTIFICATE", cert.Raw), writePEM(t, "key.pem", "PRIVATE KEY", secret)
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
	needServer(t)
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
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
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

func writePEM(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
