//! Every way in which the cloud service refuses: status, code and text, as JSON or as XML.
