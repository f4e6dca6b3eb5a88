// Certificates are verified, always; nothing is followed from https to http.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/certificates.h"
#include "tests/support/fetch_fixture.h"
#include "tests/support/tunnel_proxy.h"

namespace tierpack::support {
namespace {

class TlsTest : public FetchTest {
 protected:
  void start(int days = 1, const char* address = "IP:127.0.0.1", bool plain_cdn = false) {
    certificate_ = root() / "cert.pem";
    write_self_signed(certificate_, root() / "key.pem", days, address);
    HubOptions hub;
    hub.certificate = certificate_;
    hub.key = root() / "key.pem";
    hub.plain_cdn = plain_cdn;
    start_hub(hub);
  }
  fetch::FetchOptions trusting() const {
    fetch::FetchOptions o = options();
    o.ca_file = certificate_.string();
    o.retries = 1;
    return o;
  }
  std::filesystem::path certificate_;
};

TEST_F(TlsTest, ATrustedCertificateIsEnough) {
  start();
  EXPECT_EQ(run(trusting()), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

TEST_F(TlsTest, TrustComesFromTheEnvironmentToo) {
  start();
  ::setenv("SSL_CERT_FILE", certificate_.c_str(), 1);
  EXPECT_EQ(run(), 0) << message_;
  ::unsetenv("SSL_CERT_FILE");
}

TEST_F(TlsTest, AnUnknownIssuerIsRefused) {
  start();
  EXPECT_EQ(run(), 5);
  EXPECT_NE(message_.find("cannot be trusted"), std::string::npos) << message_;
  EXPECT_TRUE(hub_->requests().empty());
}

TEST_F(TlsTest, AnotherNameIsRefused) {
  start(1, "DNS:hub.example");
  EXPECT_EQ(run(trusting()), 5);
  EXPECT_TRUE(hub_->requests().empty());
}

TEST_F(TlsTest, AnExpiredCertificateIsRefused) {
  start(-1);
  EXPECT_EQ(run(trusting()), 5);
  EXPECT_TRUE(hub_->requests().empty());
}

TEST_F(TlsTest, InsecureIsAnExplicitChoice) {
  start();
  auto o = options();
  o.insecure = true;
  EXPECT_EQ(run(o), 0) << message_;
}

TEST_F(TlsTest, NoRedirectFromHttpsToHttp) {
  start(1, "IP:127.0.0.1", true);
  EXPECT_EQ(run(trusting()), 1);
  EXPECT_FALSE(exists("model.bin"));
  for (const HubRequest& request : hub_->requests()) EXPECT_FALSE(request.on_cdn) << request.target;
}

// https through a proxy: a tunnel, in which the certificate is verified and the token hidden.
TEST_F(TlsTest, ATunnelThroughAProxy) {
  start(1, "DNS:hub.example,IP:127.0.0.1");
  TunnelProxy proxy(hub_->port());
  auto o = trusting();
  o.endpoint.clear();
  o.reference = "https://hub.example:" + std::to_string(hub_->port()) + "/files/o/m/model.bin";
  write_text(root() / "token", "secret_token\n");
  std::filesystem::permissions(root() / "token", std::filesystem::perms::owner_read);
  o.token_file = (root() / "token").string();
  ::setenv("HTTPS_PROXY", proxy.url().c_str(), 1);
  EXPECT_EQ(run(o), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
  ASSERT_FALSE(proxy.requests().empty());
  for (const std::string& head : proxy.requests()) {
    EXPECT_TRUE(head.starts_with("CONNECT hub.example:")) << head;
    EXPECT_EQ(head.find("secret_token"), std::string::npos);
  }
  for (const HubRequest& request : hub_->requests()) EXPECT_EQ(request.header("authorization"), "Bearer secret_token");
  // What NO_PROXY names is asked directly.
  std::filesystem::remove_all(target());
  const size_t tunnels = proxy.requests().size();
  ::setenv("NO_PROXY", "127.0.0.1", 1);
  EXPECT_EQ(run(trusting()), 0) << message_;
  EXPECT_EQ(proxy.requests().size(), tunnels);
  ::unsetenv("NO_PROXY");
  ::unsetenv("HTTPS_PROXY");
}

TEST_F(TlsTest, AProxyThatRefusesEndsWithTheNetworkCode) {
  start();
  TunnelProxy proxy(hub_->port(), true);
  ::setenv("HTTPS_PROXY", proxy.url().c_str(), 1);
  EXPECT_EQ(run(trusting()), 5);
  ::unsetenv("HTTPS_PROXY");
  EXPECT_FALSE(exists("model.bin"));
  EXPECT_TRUE(hub_->requests().empty());
}

TEST_F(TlsTest, CurlsCertificateBundleIsHonoured) {
  start();
  ::setenv("CURL_CA_BUNDLE", certificate_.c_str(), 1);
  EXPECT_EQ(run(), 0) << message_;
  ::unsetenv("CURL_CA_BUNDLE");
}

TEST_F(TlsTest, CutConnectionsAreNotTakenForEnds) {
  start();
  Fault f;
  f.match = "/cdn/";
  f.action = "truncate";
  f.bytes = 1000;
  hub_->add_fault(f);
  EXPECT_EQ(run(trusting()), 0) << message_;
  EXPECT_TRUE(fetched("model.bin") == model_);
}

}  // namespace
}  // namespace tierpack::support
