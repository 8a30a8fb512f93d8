//! Authorities, certificates and tokens of a cluster, made anew for each.
//!
//! Decides who signs what: the front proxy has an authority of its own, as a cluster should, so that a
//! certificate of the cluster's does not pass for the aggregator's.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// The common name by which the API server knows its own front proxy.
pub const FRONT_PROXY: &str = "front-proxy";

/// Tokens that the API server knows: everything is allowed to the one, nothing to the other.
pub const ADMIN: &str = "admin-token";
pub const NOBODY: &str = "nobody-token";

/// A certificate and its key, in PEM.
pub struct Pair {
    pub crt: String,
    pub key: String,
}

/// What signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for these host names and addresses.
    pub fn server(&self, names: &[&str]) -> Pair {
        self.sign(params("server", names), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client of this name.
    pub fn client(&self, name: &str) -> Pair {
        self.sign(params(name, &[]), ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Pair {
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { crt: certificate.pem(), key: key.serialize_pem() }
    }
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Who signs in a cluster, and the folder of what the API server reads.
pub struct Keys {
    pub cluster: Authority,
    pub front_proxy: Authority,
    folder: PathBuf,
}

impl Keys {
    /// Fills `folder`.
    pub fn write(folder: &Path) -> Self {
        let keys = Self {
            cluster: Authority::new("cluster"),
            front_proxy: Authority::new("front-proxy-authority"),
            folder: folder.to_owned(),
        };
        // The API server's service has the first address of the range.
        let names = ["127.0.0.1", "10.0.0.1", "localhost", "kubernetes.default.svc"];
        keys.put("cluster.crt", &keys.cluster.pem);
        keys.put_pair("serving", &keys.cluster.server(&names));
        keys.put("front-proxy-authority.crt", &keys.front_proxy.pem);
        keys.put_pair("front-proxy", &keys.front_proxy.client(FRONT_PROXY));
        let accounts = KeyPair::generate().unwrap();
        keys.put("accounts.key", &accounts.serialize_pem());
        keys.put("accounts.pub", &accounts.public_key_pem());
        let tokens =
            format!("{ADMIN},admin,1,\"system:masters\"\n{NOBODY},nobody,2,\"nobodies\"\n");
        keys.put("tokens.csv", &tokens);
        keys
    }

    /// Where a file of this name is.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn put_pair(&self, name: &str, pair: &Pair) {
        self.put(&format!("{name}.crt"), &pair.crt);
        self.put(&format!("{name}.key"), &pair.key);
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }
}
